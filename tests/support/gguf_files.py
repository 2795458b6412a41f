"""GGUF files with other fields than they had."""

import contextlib

from conversion.runtimes.gguf import proving
from conversion.runtimes.gguf.file import GgufFile


def changed(path, tensors=None, **fields):
    """The file with more tensors, other fields, as `llama__expert_count=8`, and in float32."""
    import gguf

    file = GgufFile(path)
    names = {name.replace("__", "."): value for name, value in fields.items()}
    other = path.with_name("changed.gguf")
    with contextlib.closing(gguf.GGUFWriter(other, file.architecture)) as writer:
        proving.copy_fields(file, writer, but=names)
        ways = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
        ways[list] = writer.add_array
        for name, value in names.items():
            ways.get(type(value), writer.add_float32)(name, value)
        held = {name: file.read(name) for name in file.packed}
        for name, tensor in {**held, **(tensors or {})}.items():
            writer.add_tensor(name, tensor.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    return other
