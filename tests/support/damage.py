"""Files that are damaged or that would run code when they are read."""

import zipfile


class Trap:
    """Run when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def flip(path, offset, bit=1):
    content = bytearray(path.read_bytes())
    content[offset] ^= bit
    path.write_bytes(content)


def largest_record(path):
    """Its name, and where its bytes begin in the file."""
    with zipfile.ZipFile(path) as archive:
        record = max(archive.infolist(), key=lambda record: record.file_size)
    names = path.read_bytes()[record.header_offset + 26 : record.header_offset + 30]
    lengths = int.from_bytes(names[:2], "little") + int.from_bytes(names[2:], "little")
    return record.filename, record.header_offset + 30 + lengths
