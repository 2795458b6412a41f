"""The attributes that are judged by their name alone, as nothing is known about their object."""

# Attributes that are dangerous on any object, and as part of any longer name.
ATTRIBUTES = {
    "insides": """
        __subclasses__ __globals__ __builtins__ __code__ __closure__ __self__ __loader__ __spec__
        __traceback__ tb_frame tb_next f_globals f_locals f_back f_builtins f_code gi_frame gi_code
        cr_frame cr_code ag_frame ag_code co_code co_consts __getattribute__ __build_class__
        __import__ on_generate_code gi_yieldfrom cell_contents func_globals __array_interface__
        __array_struct__
        __cuda_array_interface__ __buffer__ ag_await cr_await cr_origin _getframe settrace
        __subclasshook__ __mro_entries__
    """,
    "pickle": "__reduce__ __reduce_ex__ find_class _rebuild_tensor_v2",
    "eval": """
        make_dataclass ForwardRef _evaluate get_type_hints exec_module load_module run_module
        run_path runcode runsource
    """,
    "network": """
        hf_hub_download snapshot_download urlopen urlretrieve push_to_hub
        load_state_dict_from_url download_url_to_file upload_file upload_folder create_repo
        create_connection load_url from_url get_session get_async_session hf_hub_utils
        _upload_modified_files
    """,
    "subprocess": """
        check_output check_call getoutput Popen popen posix_spawn load_library load_inline CDLL
        cpp_extension LoadLibrary PyDLL dlopen create_subprocess_shell create_subprocess_exec
        from_address in_dll
    """,
    "foreign code": """
        get_class_from_dynamic_module get_class_in_module get_cached_module_file get_kernel
        load_custom_generate resolve_trust_remote_code lazy_load_kernel
    """,
    "hidden import": """
        import_module spec_from_file_location module_from_spec _LazyModule _load_attr_from_module
        getattribute_from_module
    """,
    "file deletions": """
        write_text write_bytes unlink rmdir rmtree symlink_to hardlink_to link_to tofile touch chmod
        lchmod to_folder write_svg
    """,
    "file writes": """
        mkdir save_file to_json_file _dump _write_file to_csv to_parquet to_pickle to_hdf to_feather
        to_excel
    """,
    "tampering": "_convert_",
    "secrets": "download_kwargs get_token",
}
# Attributes that a person has to look at, on any object.
READ_ATTRIBUTES = {
    "computed names": """
        __dict__ __bases__ __mro__ __base__ mro __wrapped__ __func__ __weakref__ __annotations__
        __prepare__
    """,
    "downloads": """
        set_attn_implementation load_adapter load_dataset load_backbone
        load_metadata fetch_audio fetch_images fetch_videos get_config_dict get_processor_dict
        get_image_processor_dict get_feature_extractor_dict get_video_processor_dict
        get_tokenizer_config cached_file cached_files
    """,
    "file reads": """
        read_text read_bytes iterdir rglob from_file read_file from_json_file _dict_from_json_file
    """,
    "global flags": "addFilter addHandler removeFilter removeHandler set_verbosity",
    "unknown": "show __del__ __setattr__ __delattr__",
}
# Attributes that lead from harmless objects of the standard library to dangerous ones, such as the
# stream of a progress bar. They are the folder's own where it defines or assigns them itself.
LEADING = """
    fp buffer raw stream obj handlers manager loggerDict format_map get_field vformat interpolate
    __match_args__ __instancecheck__ __subclasscheck__
"""
# Attributes that a class of transformers has for all its objects and subclasses.
SHARED = """
    attribute_map base_model_ep_plan base_model_fsdp_plan base_model_pp_plan base_model_tp_plan
    ignore_keys_at_rope_validation keys_to_ignore_at_inference model_input_names
    skip_tensor_conversion sub_configs SPECIAL_TOKENS_ATTRIBUTES _tied_weights_keys
    _no_split_modules _keep_in_fp32_modules _keys_to_ignore_on_load_missing
    _keys_to_ignore_on_load_unexpected _keys_to_ignore_on_save _can_record_outputs
"""
# Private attributes of torch and transformers that honest code uses.
PRIVATE = """
    _ALPHABET_SERIALIZED_FILENAME _BatchNorm _C _LANGUAGE_MODEL_SERIALIZED_DIRECTORY _VF
    _additional_special_tokens _alphabet _asdict _attn_implementation_autoset
    _autoset_attn_implementation _base _batch_encode_plus _batch_prepare_for_model _backbone
    _calculate_fan_in_and_fan_out _call_one _cast _commit_hash _config _conv_forward
    _convert_to_legacy_cache _cos_cached _device _device_map _dtype _encode _encode_new_memory
    _extract_past_from_model_output _fields _flash_attention_forward _flash_attn_2_enabled
    _flash_attn_uses_top_left_mask _freeze_parameters _from_model_config _functions
    _generate_next_value_ _get_feat_extract_output_lengths _get_feature_vector_attention_mask
    _get_feature_vector_output_lengths _get_generation_mode _get_logits_warper _get_preprocess_shape
    _get_subsampling_output_length _hf_peft_config_loaded _init_rope _ignore_causal_mask_sdpa
    _ignore_index _fused _is_residual _is_user_defined _make _member_map_ _missing_ _model
    _model_key _name _past_length _prepare_cache_position _prepare_decoder_attention_mask
    _prepare_encoder_decoder_kwargs_for_generation _prepare_for_class
    _prepare_multimodal_encoder_kwargs_for_generation _pre_quantization_dtype
    _prepare_text_encoder_decoder_kwargs_for_generation _replace _requires_grad _reset_cache
    _rope_parameters _rotate_half _seen_tokens _set_token_in_kwargs _shape _shared_state
    _shift_right _sin_cached _softmax_backward_data _supports_cache_class _supports_flash_attn_2
    _temporary_reorder_cache _tie_or_clone_weights _tie_weights _token
    _tokenizer_json_has_byte_level _unpad_input _upad_input _update_causal_mask
    _upcast_and_reordered_attn _use_flash_attention_2 _use_sdpa _validate_assistant
    _validate_model_class _value2member_map_ _weight_norm_cls
"""
