"""The known names, by kind: names.py says how the patterns are read.

A new name belongs under HARMLESS only if no argument makes it do more than compute.
"""

from .known_names_of_libraries import OF_LIBRARIES

HARMLESS = "harmless"
LISTED = {
    HARMLESS: """
        __future__.** abc.** array.** ast ast.literal_eval base64.** bisect.** builtins.*Error
        builtins.*Warning builtins.__debug__ builtins.__doc__ builtins.__name__ builtins.abs
        builtins.all builtins.any builtins.ascii builtins.BaseException builtins.bin builtins.bool
        builtins.bytearray builtins.bytes builtins.bytes.** builtins.callable builtins.chr
        builtins.classmethod builtins.complex builtins.delattr builtins.dict builtins.dict.**
        builtins.divmod builtins.Ellipsis builtins.enumerate builtins.Exception builtins.False
        builtins.filter builtins.float builtins.float.** builtins.format builtins.frozenset
        builtins.GeneratorExit builtins.getattr builtins.hasattr builtins.hash builtins.hex
        builtins.id builtins.int builtins.int.** builtins.isinstance builtins.issubclass
        builtins.iter builtins.KeyboardInterrupt builtins.len builtins.list builtins.list.**
        builtins.map builtins.max builtins.memoryview builtins.min builtins.next builtins.None
        builtins.NotImplemented builtins.object builtins.object.** builtins.oct builtins.ord
        builtins.pow builtins.print builtins.property builtins.range builtins.repr builtins.reversed
        builtins.round builtins.set builtins.set.** builtins.setattr builtins.slice builtins.sorted
        builtins.staticmethod builtins.StopIteration builtins.str builtins.str.** builtins.sum
        builtins.super builtins.SystemExit builtins.True builtins.tuple builtins.tuple.**
        builtins.type builtins.type.** builtins.zip bz2 bz2.compress bz2.decompress cmath.** codecs
        collections.** contextlib contextlib.AbstractContextManager.**
        contextlib.asynccontextmanager contextlib.closing contextlib.ContextDecorator.**
        contextlib.contextmanager contextlib.ExitStack.** contextlib.nullcontext contextlib.suppress
        ctypes ctypes.c_bool ctypes.c_byte ctypes.c_double ctypes.c_float ctypes.c_int
        ctypes.c_int16 ctypes.c_int32 ctypes.c_int64 ctypes.c_int8 ctypes.c_long ctypes.c_longlong
        ctypes.c_short ctypes.c_size_t ctypes.c_ssize_t ctypes.c_ubyte ctypes.c_uint ctypes.c_uint16
        ctypes.c_uint32 ctypes.c_uint64 ctypes.c_uint8 ctypes.c_ulong ctypes.c_ulonglong
        ctypes.c_ushort ctypes.c_void_p ctypes.sizeof
        copy.** dataclasses.** datetime.** decimal.** difflib.** einops.** einops.layers.torch.**
        enum.** fractions.** functools.** gzip gzip.compress gzip.decompress heapq.** html.**
        huggingface_hub huggingface_hub.dataclasses huggingface_hub.dataclasses.as_validated_field
        huggingface_hub.dataclasses.strict huggingface_hub.dataclasses.validated_field importlib
        importlib.metadata importlib.metadata.PackageNotFoundError importlib.metadata.version
        importlib.util inspect inspect.isclass inspect.isfunction inspect.Parameter.**
        inspect.signature io io.BytesIO io.StringIO itertools.** json json.dumps
        json.JSONDecodeError json.load json.loads keyword.** lzma lzma.compress lzma.decompress
        logging logging.CRITICAL logging.DEBUG logging.debug logging.ERROR logging.error
        logging.getLogger logging.INFO logging.info logging.Logger logging.NullHandler
        logging.WARNING logging.warning math.** numbers.** operator operator.__add__
        operator.__mul__ operator.add operator.and_ operator.eq operator.ge operator.gt
        operator.index operator.itemgetter operator.le operator.lt operator.mul operator.ne
        operator.or_ operator.sub operator.truediv os os.path.basename os.PathLike os.path.dirname
        os.path.join os.path.normpath os.path.split os.path.splitext packaging packaging.version.**
        pathlib PIL PIL.__version__ PIL.Image PIL.Image.BICUBIC PIL.Image.BILINEAR
        PIL.Image.fromarray PIL.Image.Image.** PIL.Image.LANCZOS PIL.Image.NEAREST PIL.Image.new
        PIL.Image.Resampling.** PIL.ImageOps.** platform platform.machine platform.system random.**
        re.** regex.** safetensors safetensors.torch shutil shutil.SameFileError statistics.**
        string.** struct.** sys sys.byteorder sys.float_info sys.getrefcount sys.maxsize
        sys.maxunicode sys.platform sys.stderr.flush sys.stderr.isatty sys.stderr.write
        sys.stdout.flush sys.stdout.isatty sys.stdout.write sys.version sys.version_info
        sys.version_info.** textwrap.** time.** tokenizers.** tqdm tqdm.auto tqdm.auto.tqdm
        tqdm.tqdm tqdm.trange types types.BuiltinFunctionType types.EllipsisType types.GeneratorType
        types.GenericAlias types.MappingProxyType types.MethodType types.NoneType
        types.SimpleNamespace types.UnionType typing.** typing_extensions.** unicodedata.** urllib
        urllib.parse urllib.parse.** uuid uuid.uuid4 warnings warnings.catch_warnings
        warnings.filterwarnings warnings.simplefilter warnings.warn warnings.warn_explicit yaml
        zlib.compress zlib.crc32 zlib.decompress
    """,
    **OF_LIBRARIES,
    "network": """
        _socket.** _ssl.** aiohttp.** antigravity.** asynchat.** asyncore.** boto3.** botocore.**
        comet_ml.** datasets.load_dataset discord.** fastapi.** flask.** fsspec.** ftplib.**
        gcsfs.** gdown.** gradio.** grpc.** http.** httpx.** huggingface_hub.* huggingface_hub.*.**
        imaplib.** logging.handlers.** mlflow.** nntplib.** numpy.DataSource numpy.genfromtxt
        numpy.loadtxt paramiko.** PIL.ImageGrab.** poplib.** pycurl.** requests.** s3fs.** select.**
        selectors.** smtpd.** smtplib.** socket.** socketserver.** ssl.** telegram.** telnetlib.**
        torch.distributed.*Store torch.distributed.elastic.** torch.distributed.init_process_group
        torch.distributed.launch.** torch.distributed.launcher.** torch.distributed.rpc.**
        torch.distributed.run.** torch.utils.model_zoo.** torchvision.datasets.utils.**
        transformers.*.hf_api transformers.audio_utils.load_audio*
        transformers.image_utils.load_image transformers.image_utils.load_images
        transformers.safetensors_conversion.** transformers.utils.download_url
        transformers.utils.has_file
        transformers.utils.hub.** transformers.utils.PushToHubMixin.**
        transformers.video_utils.load_video* urllib.** urllib3.** uvicorn.** wandb.** webbrowser.**
        websocket.** websockets.** wget.** xmlrpc.** zmq.**
    """,
    "subprocess": """
        accelerate.test_utils.**
        _cffi_backend.** _ctypes.** _multiprocessing.** _posixsubprocess.** _winapi.** asyncio.**
        cffi.** concurrent.** ctypes.* ctypes.*.** Cython.** cython.** deepspeed.launcher.**
        distutils.** docker.** fabric.** fcntl.** git.** invoke.** joblib.Parallel mmap.** msvcrt.**
        multiprocessing.** nt.** numba.** numpy.ctypeslib.** numpy.distutils.** numpy.f2py.**
        os._exit os.abort os.add_dll_directory os.dup* os.exec* os.fork* os.kill* os.memfd_create
        os.nice os.pidfd_open os.pipe* os.popen os.posix_spawn* os.ptrace os.sched_* os.set*
        os.setgid os.setns os.setuid os.spawn* os.startfile os.system os.unshare os.wait* pexpect.**
        PIL.ImageShow.** plumbum.** posix.** psutil.** pty.** pyximport.** ray.** resource.**
        sched.** setuptools.** sh.** signal.** subprocess.** termios.** torch._C._load*
        torch._inductor.codecache.** torch.classes.load_library torch.cuda._compile_kernel
        torch.cuda.cudart torch.multiprocessing.** torch.ops.load_library
        torch.utils._strobelight.** torch.utils.collect_env.** torch.utils.cpp_extension.**
        torch.utils.hipify.** transformers.cli.** transformers.commands.**
        transformers.testing_utils.** tty.** venv.** winreg.**
    """,
    "eval": """
        asteval.** bdb.** builtins.breakpoint builtins.compile builtins.eval builtins.exec
        builtins.help cmd.** code.** codecs.* codeop.** cProfile.** dataclasses._*
        dataclasses.make_dataclass doctest.** idlelib.** IPython.** jinja2.** lark.** lib2to3.**
        logging.config.** mako.** numexpr.** numpy.testing.** pandas.core.computation.** pandas.eval
        pdb.** profile.** pstats.** readline.** runpy.** simpleeval.** string.Formatter
        sympy.lambdify sympy.parsing.** sympy.sympify timeit.** torch.fx.experimental.**
        torch.fx.Graph torch.fx.graph.** torch.fx.GraphModule torch.jit.CompilationUnit
        torch.jit.frontend.** torch.testing.** torch.utils.benchmark.**
        torch.utils.bundled_inputs.** trace.** transformers.utils.chat_template_utils.** turtle.**
        types.CodeType types.FunctionType types.LambdaType typing._eval_type typing.ForwardRef
        typing.get_type_hints typing_extensions.evaluate_forward_ref
        typing_extensions.get_type_hints
    """,
    "pickle": """
        torch._inductor.config.load_config
        _codecs.** _pickle.** cloudpickle.** compress_pickle.** copyreg.** dbm.** dill.** hickle.**
        joblib.** jsonpickle.** klepto.** marshal.** numpy._core.** numpy.core.** numpy.lib.**
        numpy.load pandas.io.** pandas.read_pickle pickle.** pickletools.** ruamel.** shelve.**
        sklearn.externals.** skops.** torch._C._import_ir_module* torch._C.import_ir_module*
        torch._load* torch._utils.** torch._weights_only_unpickler.** torch.distributed.*_object*
        torch.distributed.checkpoint.** torch.export.* torch.jit.* torch.jit._serialization.**
        torch.import_ir_module* torch.jit.load torch.load torch.package.** torch.serialization.**
        torch.storage.**
        transformers.modeling_utils.load_sharded_checkpoint
        transformers.modeling_utils.load_state_dict transformers.trainer_utils.load_* yaml.*Loader
        yaml.constructor.** yaml.full_load* yaml.load* yaml.unsafe_load*
    """,
    "foreign code": """
        ensurepip.** evaluate.load kernels.** langchain.** modelscope.** pip.** pkg_resources.**
        smolagents.** transformers.*Agent* transformers.*Tool transformers.AgentRunner
        transformers.agents.** transformers.dynamic_module_utils.**
        torch.hub.** transformers.integrations.hub_kernels.** transformers.KernelConfig
        transformers.load_tool
        transformers.pipeline transformers.pipelines transformers.pipelines.* transformers.Tool*
        transformers.tools.** transformers.utils.kernel_config.** transformers_modules.** zipapp.**
        zipimport.**
    """,
    "hidden import": """
        _frozen_importlib.** _frozen_importlib_external.** _imp.** builtins.__import__ imp.**
        importlib.* importlib.*.** modulefinder.** pkgutil.** pyclbr.** pydoc.** site.**
        sitecustomize.** transformers.utils._LazyModule
        transformers.utils.direct_transformers_import transformers.utils.import_utils._LazyModule
        usercustomize.**
    """,
    "insides": """
        _interpreters.** _io.** _testcapi.** _thread.** _weakref.** _xxsubinterpreters.**
        atexit.** builtins.__builtins__ builtins.__loader__ builtins.__spec__ builtins.globals
        contextvars.Context dis.** faulthandler.** gc.** inspect.* linecache.** opcode.**
        symtable.** sys.* sys.*.** sysconfig.** traceback.** tracemalloc.** types.CellType
        types.FrameType types.TracebackType
    """,
    "secrets": """
        crypt.** dotenv.** getpass.** grp.** huggingface_hub.get_token huggingface_hub.HfFolder.**
        huggingface_hub.login keyring.** netrc.** os.environ.__* os.environ.copy os.environ.items
        os.environ.keys os.environ.values os.environb os.getlogin os.path.expandvars
        posixpath.expandvars pwd.** secrets.** spwd.**
    """,
    "tampering": """
        builtins.__build_class__ contextlib.redirect_* enum.global_enum forbiddenfruit.** gorilla.**
        hf_tformer.** mock.** sys.path sys.path.** sys.stderr.** sys.stdin.** sys.stdout.**
        torch._dynamo.eval_frame.** torch.library.*.**
        torch.optim.optimizer.register_optimizer_step_* transformers.monkey_patching.** unittest.**
        wrapt.**
    """,
    "not understood": """
        functools.singledispatch functools.singledispatch.** functools.singledispatchmethod
        functools.singledispatchmethod.** safetensors.serialize_file torch.*Storage.from_file
        torch._C.** torch._dynamo.** torch._inductor.** torch._inductor.config.c*
        torch._inductor.config.c*.** torch._logging.** torch._VF.** torch.fx.graph_module.**
        torch.profiler.ExecutionTraceObserver.** torch.utils._pytree.register_*
        torch.utils.data.datapipes.** torch.utils.file_baton.**
        transformers.conversion_mapping.register_checkpoint_conversion_mapping
        transformers.model_debugging_utils.** transformers.pipelines.audio_utils.**
        transformers.trainer_jit_checkpoint.** transformers.trainer_pt_utils.save_*
        transformers.utils.import_utils.direct_transformers_import
    """,
    "file deletions": """
        bz2.* bz2.*.** configparser.** contextlib.chdir csv.writer filecmp.** fileinput.** gzip.*
        gzip.*.** h5py.** io.Buffered* io.FileIO io.open_code io.Text* logging.FileHandler lzma.*
        lzma.*.** mailbox.** numpy.memmap os.chdir os.chmod os.chown os.chroot os.copy_file_range
        os.fchmod os.fchown os.fdopen os.ftruncate os.lchown os.link os.mkfifo os.mknod os.open
        os.pwrite* os.remove os.removedirs os.rename* os.replace os.rmdir os.sendfile os.setxattr
        os.splice os.symlink os.truncate os.unlink os.utime os.write plistlib.** shutil.**
        sqlite3.** tarfile.** tempfile.** torch.distributed.FileStore torch.from_file
        torch.PyTorchFileWriter torch.fx.passes.graph_drawer.** torch.ops.aten.from_file
        torch.profiler.profile torch.profiler.tensorboard_trace_handler torch.UntypedStorage.**
        torch.utils.tensorboard.** zipfile.**
    """,
    "file writes": """
        accelerate.*offload* accelerate.utils.*offload* accelerate.utils.save* argparse.FileType
        json.dump numpy.save* os.makedirs os.mkdir safetensors.*.save* shutil.copy shutil.copy2
        shutil.copyfile torch.cuda.memory._dump_snapshot torch.jit.save torch.onnx.export torch.save
        transformers.image_utils.save_*
    """,
    "file reads": """
        builtins.__file__ builtins.open csv.reader cv2.** fnmatch.** glob.** io.open numpy.fromfile
        os.access os.fspath os.getcwd os.listdir os.lstat os.path.** os.scandir os.sep
        os.stat os.walk pathlib.** PIL.*.Image.open PIL.Image.open safetensors.* safetensors.*.load*
        soundfile.**
    """,
    "computed names": """
        builtins.dir builtins.locals builtins.vars
    """,
    "downloads": """
        transformers.*.load_backbone transformers.utils.backbone_utils.load_backbone
        transformers.utils.cached_file transformers.utils.cached_files
        transformers.utils.hub.cached_file transformers.utils.hub.cached_files
        transformers.utils.hub.get_checkpoint_shard_files
    """,
    "environment": """
        os.cpu_count os.environ os.environ.* os.getenv os.getpid os.putenv os.unsetenv
    """,
    "global flags": """
        numpy.random.seed numpy.random.set_state random.seed random.setstate torch._dynamo.config.**
        torch._inductor.config.** torch.backends.*.* torch.backends.*.*.** torch.cuda.manual_seed*
        torch.cuda.set_* torch.manual_seed
        torch.distributions.kl.register_kl torch.distributions.register_kl
        torch.nn.modules.module.register_module_*
        torch.random.manual_seed torch.random.set_rng_state torch.set_* torch.set_default_*
        torch.set_float32_matmul_precision torch.set_flush_denormal torch.set_num_*
        torch.set_rng_state torch.use_deterministic_algorithms
    """,
    "threads": """
        _queue.** queue.** threading.** torch.utils.data.**
    """,
    "unknown": """
        argparse.** ast.* builtins.input calendar.** colorsys.** graphlib.** hashlib.** hmac.**
        importlib.util.find_spec inspect.getdoc inspect.getfullargspec inspect.ismethod
        json.*Encoder json.*Encoder.** json.decoder.** json.JSONDecoder.** locale.** logging.*
        logging.*.** numpy.lib.stride_tricks.as_strided operator.attrgetter operator.methodcaller
        pprint.** stringprep.** torch.compile torch.compiler.* torch.distributed.** torch.fx.**
        torch.jit.trace* torch.library.custom_op torch.library.CustomOpDef torch.library.define
        torch.library.infer_schema torch.library.opcheck torch.library.register_autograd
        torch.library.register_fake torch.library.*triton* torch.utils.hooks.**
        transformers.*Pipeline transformers.pipelines.*Pipeline transformers.pipelines.base.Pipeline
        transformers.pipelines.PIPELINE_REGISTRY.** warnings.* weakref.** zlib.** zoneinfo.**
        types.ModuleType
    """,
}
