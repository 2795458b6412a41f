"""The harmless names of three libraries, by library: names.py puts the library in front.

The same rule holds as in known_names.py.
"""

OF_LIBRARIES = {
    "harmless, of torch": """
        __version__ __version__.split _assert _C _C._functorch.** _C._get_tracing_state
        _C._jit_override_can_fuse_on_cpu _C._jit_override_can_fuse_on_gpu
        _C._jit_set_profiling_executor _C._jit_set_profiling_mode _C._nn.** _C.Graph _C.Value
        _dynamo _dynamo.allow_in_graph _dynamo.disable _dynamo.graph_break _dynamo.is_compiling
        _dynamo.mark_dynamic _dynamo.mark_static_address _inductor _check _check_is_size amp
        amp.autocast amp.custom_bwd amp.custom_fwd atleast_1d atleast_2d atleast_3d autocast
        autograd autograd.function autograd.Function.** autograd.function.Function
        autograd.function.Function.** autograd.function.FunctionCtx
        autograd.function.InplaceFunction autograd.function.once_differentiable
        autograd.functional.** autograd.grad autograd.profiler.record_function autograd.Variable
        backends backends.cuda backends.cuda.is_built backends.cuda.sdp_kernel backends.cudnn
        backends.cudnn.is_available backends.mps backends.mps.is_available bfloat16 BFloat16Tensor
        block_diag bool BoolTensor broadcast_shapes broadcast_tensors ByteTensor cartesian_prod
        cdist cfloat channels_last compiler compiler.disable compiler.is_compiling
        compiler.is_dynamo_compiling compiler.is_exporting complex128 complex64 cond
        contiguous_format cpu cuda cuda.amp cuda.amp.autocast cuda.amp.custom_bwd
        cuda.amp.custom_fwd cuda.current_device cuda.current_stream cuda.device cuda.device_count
        cuda.empty_cache cuda.Event cuda.FloatTensor cuda.get_device_capability cuda.get_device_name
        cuda.get_device_properties cuda.is_available cuda.is_bf16_supported
        cuda.is_current_stream_capturing cuda.is_initialized cuda.Stream cuda.stream
        cuda.synchronize device distributed distributed.get_rank distributed.get_world_size
        distributed.is_available distributed.is_initialized distributions distributions.** double
        DoubleTensor dtype e einsum enable_grad fft fft.** finfo float float16 float32 float64
        float8_e4m3fn float8_e5m2 FloatTensor fx fx.wrap gelu Generator get_autocast_cpu_dtype
        get_autocast_dtype get_autocast_gpu_dtype get_device_module half HalfTensor hpu
        hpu.is_available iinfo inf inference_mode int int16 int32 int64 int8 IntTensor
        is_autocast_available is_autocast_cpu_enabled is_autocast_enabled is_storage is_tensor jit
        jit.annotate jit.export jit.Final jit.ignore jit.is_scripting jit.is_tracing jit.script
        jit.script_if_tracing jit.unused layout linalg linalg.** long LongTensor masked
        memory_format meshgrid mgrid mps mps.is_available nan nested nested.nested_tensor nn nn.**
        no_grad norm npu npu.is_available onnx onnx.is_in_onnx_export optim optim.** overrides
        overrides.handle_torch_function overrides.has_torch_function
        overrides.has_torch_function_unary overrides.has_torch_function_variadic pad_sequence pi
        preserve_format profiler profiler.record_function quint8 random set_grad_enabled short
        signal.windows.** Size sparse sparse_coo special special.** split strided Tensor Tensor.**
        tensordot types types.** uint16 uint32 uint8 unique unique_consecutive unravel_index utils
        utils._pytree utils._pytree.tree_map utils.checkpoint utils.checkpoint.checkpoint
        utils.checkpoint.checkpoint_sequential utils.checkpoint.create_selective_checkpoint_contexts
        utils.rnn.** version version.** view_as vmap xpu xpu.is_available
    """,
    "harmless, of transformers": """
        *Backend *Backend.** *Cache *Cache.** *CacheLayer *Config *Config.** *FeatureExtractor
        *FeatureExtractor.** *For* *For*.** *LogitsProcessor *LogitsWarper *Mixin *Mixin.** *Model
        *Model.** *Output *Processor *Processor.** *ProcessorFast *Streamer *Tokenizer *Tokenizer.**
        *TokenizerFast *TokenizerFast.** __version__ activations activations.** activations_*.**
        AddedToken AttentionInterface AttentionInterface.register AttentionMaskInterface
        AttentionMaskInterface.register audio_utils audio_utils.amplitude_to_db
        audio_utils.AudioInput audio_utils.hertz_to_mel audio_utils.make_list_of_audio
        audio_utils.mel_filter_bank audio_utils.mel_to_hertz audio_utils.optimal_fft_length
        audio_utils.power_to_db audio_utils.spectrogram audio_utils.window_function
        backbone_utils.** BatchEncoding BatchFeature cache_utils cache_utils.** ChatTemplate
        CONFIG_MAPPING configuration_utils configuration_utils.layer_type_validation
        configuration_utils.Pre* configuration_utils.Pre*.** configuration_utils.strict
        core_model_loading.WeightConverter core_model_loading.WeightRenaming
        deepspeed.is_deepspeed_zero3_enabled feature_extraction_sequence_utils.Seq*
        feature_extraction_utils.BatchFeature feature_extraction_utils.Feature* file_utils.add_*
        file_utils.is_* file_utils.ModelOutput file_utils.replace_return_* generation
        generation.*Config generation.*Config.** generation.*Mixin generation.*Mixin.**
        generation.*Output generation.configuration_utils.** generation.Logits*
        generation.logits_process generation.logits_process.** generation.Stopping*
        generation.stopping_criteria generation.stopping_criteria.** generation.streamers.**
        generation.utils generation.utils.*Mixin generation.utils.*Mixin.** generation.utils.*Output
        generation.utils.Generate* generation.utils.GenerationConfig
        generation.utils.LogitsProcessorList generation.utils.StoppingCriteriaList
        GradientCheckpointingLayer image_processing_base.Batch* image_processing_utils
        image_processing_utils.Base* image_processing_utils.Batch*
        image_processing_utils.get_size_dict image_processing_utils_fast.** image_transforms
        image_transforms.** image_utils image_utils.Channel* image_utils.get_image_size
        image_utils.IMAGE* image_utils.Image* image_utils.infer_* image_utils.is_*
        image_utils.make_* image_utils.OPENAI* image_utils.PIL* image_utils.PIL*.**
        image_utils.Size* image_utils.to_numpy_array image_utils.valid_images image_utils.validate_*
        initialization initialization.** integrations integrations.*_attention
        integrations.*_attention.*_forward integrations.deepspeed.is_deepspeed_zero3_enabled
        integrations.hub_kernels.use_kernel_forward_from_hub
        integrations.hub_kernels.use_kernel_func_from_hub
        integrations.hub_kernels.use_kernel_func_from_hub_with_fallback
        integrations.hub_kernels.use_kernelized_func integrations.is_deepspeed_zero3_enabled
        integrations.use_kernel_forward_from_hub integrations.use_kernel_func_from_hub
        integrations.use_kernel_func_from_hub_with_fallback integrations.use_kernelized_func logging
        logging.** LogitsProcessor LogitsProcessorList loss.** masking_utils masking_utils.**
        MaxLengthCriteria MinLengthLogitsProcessor MODEL_MAPPING modeling_attn_mask_utils.**
        modeling_flash_attention_utils modeling_flash_attention_utils.*Kwargs
        modeling_flash_attention_utils._flash* modeling_flash_attention_utils._get_unpad_data
        modeling_flash_attention_utils._is_packed_sequence
        modeling_flash_attention_utils._upad_input modeling_flash_attention_utils.flash*
        modeling_flash_attention_utils.is_* modeling_flash_attention_utils.prepare_fa*
        modeling_layers modeling_layers.** modeling_outputs modeling_outputs.** modeling_rope_utils
        modeling_rope_utils.** modeling_utils modeling_utils.ALL_* modeling_utils.ALL_*.**
        modeling_utils.AttentionInterface modeling_utils.AttentionInterface.register
        modeling_utils.get_parameter_dtype modeling_utils.ModuleUtilsMixin
        modeling_utils.PreTrainedModel modeling_utils.PreTrainedModel.** models models.*
        models.*.*Config models.*.*For* models.*.*Model models.*.*Processor* models.*.*Tokenizer*
        models.*.configuration_* models.*.configuration_*.*Config
        models.*.configuration_*.*Config.** models.*.image_processing_*
        models.*.image_processing_*.* models.*.modeling_* models.*.modeling_*.*
        models.*.modeling_*.*.** models.*.processing_* models.*.processing_*.*
        models.*.tokenization_* models.*.tokenization_*.*Tokenizer*
        models.*.tokenization_*.*Tokenizer*.** models.auto models.auto.Auto*
        models.auto.configuration_auto.Auto* models.auto.modeling_auto.Auto*
        models.auto.tokenization_auto.Auto* PreTrainedTokenizerBase PreTrainedTokenizerBase.**
        processing_utils processing_utils.*Kwargs processing_utils.MultiModalData
        processing_utils.ProcessorMixin processing_utils.ProcessorMixin.** processing_utils.Unpack
        pytorch_utils pytorch_utils.** StoppingCriteria StoppingCriteriaList TensorType TextStreamer
        tokenization_python.PreTrainedTokenizer tokenization_python.PreTrainedTokenizer.**
        tokenization_utils.AddedToken tokenization_utils.PreTrainedTokenizer
        tokenization_utils.PreTrainedTokenizer.** tokenization_utils_base
        tokenization_utils_base.AddedToken tokenization_utils_base.Batch*
        tokenization_utils_base.Pa* tokenization_utils_base.Pre* tokenization_utils_base.TensorType
        tokenization_utils_base.Text* tokenization_utils_base.Trunc* tokenization_utils_fast.Pre*.**
        tokenization_utils_fast.PreTrainedTokenizerFast
        tokenization_utils_tokenizers.PreTrainedTokenizerFast
        tokenization_utils_tokenizers.PreTrainedTokenizerFast.** trainer_pt_utils.LabelSmoother
        utils utils.*Kwargs utils.add_* utils.auto_docstring utils.backbone_utils.** utils.*_NAME
        utils.can_return_tuple utils.ContextManagers utils.deprecation.deprecate_kwarg utils.doc.**
        utils.DUMMY_INPUTS utils.DUMMY_MASK utils.ExplicitEnum utils.filter_out_non_signature_kwargs
        utils.generic utils.generic.*Kwargs utils.generic.can_return_tuple
        utils.generic.check_model_inputs utils.generic.ExplicitEnum utils.generic.is_*
        utils.generic.maybe_autocast utils.generic.merge_* utils.generic.ModelOutput
        utils.generic.OutputRecorder utils.generic.PaddingStrategy utils.generic.TensorType
        utils.generic.to_* utils.import_utils utils.import_utils.is_* utils.import_utils.requires
        utils.is_* utils.logging utils.logging.get_logger utils.logging.set_verbosity*
        utils.ModelOutput utils.output_capturing.** utils.PaddingStrategy
        utils.quantization_config.*Config utils.replace_return_* utils.requires_backends
        utils.TensorType utils.to_* utils.torch_compilable_check utils.TransformersKwargs
        utils.type_validators.** utils.versions.require_version video_utils.VideoInput
        video_utils.VideoMetadata
    """,
    "harmless, of numpy": """
        __version__ abs absolute add all allclose amax amin any append arange arccos arcsin arctan
        arctan2 argmax argmin argsort argwhere around array array_equal array_split asarray
        ascontiguousarray atleast_1d atleast_2d atleast_3d average bincount bool bool_ broadcast_to
        bytes_ ceil clip column_stack complex128 complex64 concatenate convolve copy corrcoef cos
        cosh count_nonzero cross cumprod cumsum deg2rad diag diff digitize divide dot double dtype e
        einsum empty empty_like equal errstate exp expand_dims expm1 eye fft fft.** finfo
        flatnonzero flip float float16 float32 float64 float_ floating floor floor_divide full
        full_like generic gradient hamming hanning hstack hypot iinfo imag inf inner int int16 int32
        int64 int8 integer interp intersect1d isclose isfinite isin isinf isnan isscalar kron
        lib.stride_tricks.** linalg linalg.** linspace log log10 log1p log2 logical_and logical_not
        logical_or logical_xor logspace matmul max maximum mean median meshgrid min minimum mod
        moveaxis multiply nan nan_to_num nanmax nanmean nanmin nansum ndarray ndarray.** ndim
        newaxis nonzero number object_ ones ones_like outer pad percentile pi power prod quantile
        random random.** ravel real repeat reshape roll rollaxis rot90 round searchsorted setdiff1d
        shape sign sin sinc single sinh size sort split sqrt square squeeze stack std str_ subtract
        sum swapaxes take tan tanh tensordot tile trace transpose trapz tri tril triu typing
        typing.** uint16 uint32 uint64 uint8 union1d unique unravel_index var vdot vstack where
        zeros zeros_like
    """,
}
