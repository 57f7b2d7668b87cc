"""Where the names of TensorFlow 1 are today: tables of names alone.

`tf1ps.v1` finds the names by these tables. `tf1ps-doctor` reads in them which names a program has
lost, and which names of tf1ps mean the same as TensorFlow's.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence

# {name from before TensorFlow 1.0: name of TensorFlow 1.15}
RENAMED = {
  "audio_summary": "summary.audio",
  "batch_matmul": "matmul",
  "complex_abs": "abs",
  "histogram_summary": "summary.histogram",
  "image_summary": "summary.image",
  "inv": "reciprocal",
  "listdiff": "setdiff1d",
  "merge_all_summaries": "summary.merge_all",
  "merge_summary": "summary.merge",
  "mul": "multiply",
  "neg": "negative",
  "pack": "stack",
  "scalar_summary": "summary.scalar",
  "select": "where",
  "sub": "subtract",
  "unpack": "unstack",
  "image.per_image_whitening": "image.per_image_standardization",
  "nn.bidirectional_rnn": "nn.static_bidirectional_rnn",
  "nn.deconv2d": "nn.conv2d_transpose",
  "nn.rnn": "nn.static_rnn",
  "nn.state_saving_rnn": "nn.static_state_saving_rnn",
  "train.SummaryWriter": "summary.FileWriter",
  "train.SummaryWriterCache": "summary.FileWriterCache",
}
RENAMED.update({"batch_" + name: name for name in (
  "cholesky", "cholesky_solve", "fft", "fft2d", "fft3d", "ifft", "ifft2d", "ifft3d",
  "matrix_band_part", "matrix_determinant", "matrix_diag", "matrix_diag_part", "matrix_inverse",
  "matrix_set_diag", "matrix_solve", "matrix_solve_ls", "matrix_transpose",
  "matrix_triangular_solve", "self_adjoint_eig", "svd")})
# Of these, the functions of today take other arguments: another name alone fixes no program.
OTHER_ARGUMENTS = frozenset(["audio_summary", "batch_matmul", "histogram_summary", "image_summary",
                             "scalar_summary"])
# Names of TensorFlow 1.15 that `tf1ps.v1` puts back.
PUT_BACK = ("config.experimental_list_devices", "pywrap_tensorflow")
# {name that has no function of today: what to use}
LOST = {
  "nn.seq2seq": "TensorFlow 0.12 is the last with it. Use tf.nn.dynamic_rnn",
  "data.experimental.CheckpointInputPipelineHook":
    "add tf.data.experimental.make_saveable_from_iterator(iterator) to the collection "
    "tf.GraphKeys.SAVEABLE_OBJECTS",
  "data.experimental.MapVectorizationOptions": "leave it out: tf.data chooses by itself",
}
LOST.update({"data.experimental." + name: "leave it out: it only measures the input" for name in (
  "StatsAggregator", "StatsOptions", "bytes_produced_stats", "latency_stats")})
LOST.update({"estimator.BoostedTrees" + name: "use the package tensorflow-decision-forests"
             for name in ("Classifier", "Estimator", "Regressor")})
LOST.update({"tpu.experimental.%sParameters" % name:
             "it is for TPUs, and tf1ps runs parameter servers on CPUs and GPUs"
             for name in ("Adagrad", "Adam", "StochasticGradientDescent")})

_QUEUES = ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"]
_TPU = ["CrossShardOptimizer", "batch_parallel", "cross_replica_sum", "initialize_system",
        "replicate", "rewrite", "shard", "shutdown_system"]
REFUSED_TPU = "v1.refused_tpu"  # the names of this room raise an error when they are called
# {namespace of `tf`: {room: the names that come from it in `tf1ps.v1`}}
DROP_INS: Dict[str, Dict[str, Sequence[str]]] = {
  "": {"session": ["Session"], "state": _QUEUES, REFUSED_TPU: ["device"]},
  "contrib.cluster_resolver": {REFUSED_TPU: ["TPUClusterResolver"]},
  # TPUEstimator on TensorFlow 1.15, too: it refuses a TPU.
  "contrib.tpu": {"v1.estimator.tpu": ["TPUEstimator"], REFUSED_TPU: _TPU},
  "contrib.training": {
    "placement": ["GreedyLoadBalancingStrategy", "RandomStrategy", "byte_size_load_fn"]},
  "distribute": {"cluster": ["Server"], REFUSED_TPU: ["TPUStrategy"]},
  "distribute.cluster_resolver": {REFUSED_TPU: ["TPUClusterResolver"]},
  "distribute.experimental": {REFUSED_TPU: ["TPUStrategy"]},
  "image": {"v1.old_orders": ["resize_images"]},
  "nn": {"v1.old_orders": [
    "nce_loss", "sampled_softmax_loss", "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits", "sparse_softmax_cross_entropy_with_logits"]},
  "queue": {"state": _QUEUES},
  "tpu": {REFUSED_TPU: _TPU},
  "tpu.experimental": {REFUSED_TPU: ["initialize_tpu_system", "shutdown_tpu_system"]},
  "train": {
    "cluster": ["Server"],
    "pipeline": [
      "Coordinator", "batch", "batch_join", "input_producer", "maybe_batch", "maybe_batch_join",
      "maybe_shuffle_batch", "maybe_shuffle_batch_join", "range_input_producer", "shuffle_batch",
      "shuffle_batch_join", "slice_input_producer", "start_queue_runners",
      "string_input_producer"],
    "placement": ["replica_device_setter"],
    "replication": ["SyncReplicasOptimizer"],
    "session": ["MonitoredTrainingSession", "Supervisor"],
    "transfer": ["AdamOptimizer"],  # with the values of TensorFlow's, also for large tables
  },
}
# {namespace of `tf`: the files of `tensorflow.python` for which `tf1ps-run` takes the namespace}
PYTHON_FILES = {
  "app": "platform.app",
  "app.flags": "platform.flags",
  "layers": "layers.convolutional layers.core layers.layers layers.normalization layers.pooling",
  "nn.rnn_cell": "ops.rnn_cell ops.rnn_cell_impl",
  "train":
    "training.coordinator training.device_setter training.input training.monitored_session "
    "training.queue_runner training.queue_runner_impl training.server_lib training.supervisor "
    "training.sync_replicas_optimizer training.training",
}
# The same, of files that newer TensorFlows do not have.
GONE_FILES = {
  "contrib.all_reduce": "distribute.all_reduce",
  "keras.applications": "keras.applications",
  "keras.datasets": "keras.datasets",
  "keras.preprocessing": "keras.preprocessing",
}


class Package(NamedTuple):
  """A package of tf.contrib, and where its names are today."""

  # {module: the names that it has today, with blanks between}. `old=new` is a name that has
  # changed. In the names of modules "tf" is tensorflow.compat.v1.
  heirs: Dict[str, str] = {}
  libraries: Sequence[str] = ()  # modules of tf_slim, whose names are names of the package
  lost: str = ""  # with libraries: the names of TensorFlow 1.15 that nothing has
  advice: str = ""  # for other names: what to use
  # How programs reach into the files of the package, such as "python.layers": it leads to `files`,
  # else to the package of the first library's names, without libraries to the package itself.
  path: str = ""
  files: Dict[str, str] = {}  # {a module below that path: the module that has it today}


_TFP = "install the package tensorflow-probability"
_INTERNALS = "tf1ps.v1.internals."
_CONTRIB = "tf1ps.v1.contrib."
_LAYERS = {  # of contrib.layers, which slim has as well
  "tf.nn": "safe_embedding_lookup_sparse",
  _CONTRIB + "embeddings": "embed_sequence",
  _CONTRIB + "columns":
    "bucketized_column create_feature_spec_for_parsing crossed_column embedding_column "
    "input_from_feature_columns one_hot_column real_valued_column "
    "sparse_column_with_hash_bucket sparse_column_with_integerized_feature "
    "sparse_column_with_keys sparse_column_with_vocabulary_file weighted_sparse_column"}
_LOST_LAYERS = (
  "bow_encoder check_feature_columns embedding_lookup_unique infer_real_valued_columns "
  "joint_weighted_sum_from_feature_columns make_place_holder_tensors_for_base_features "
  "multi_class_target parse_feature_columns_from_examples "
  "parse_feature_columns_from_sequence_examples regression_target scattered_embedding_column "
  "sequence_input_from_feature_columns shared_embedding_columns transform_features "
  "weighted_sum_from_feature_columns")

PACKAGES = {
  "autograph": Package({
    "tf.autograph": "to_code to_graph",
    "tf.autograph.experimental": "Feature do_not_convert set_loop_options"},
    advice="use tf.autograph"),
  "batching": Package({"tf": "batch_function=nondifferentiable_batch_function"}),
  "checkpoint": Package({"tf.train": "CheckpointManager"}, advice="use tf.train.Checkpoint"),
  "cluster_resolver": Package({
    "tf.distribute.cluster_resolver":
      "ClusterResolver SimpleClusterResolver TFConfigClusterResolver UnionResolver "
      "GCEClusterResolver KubernetesClusterResolver SlurmClusterResolver"}),
  "compiler": Package({"tf.xla": "jit=experimental xla=experimental"}),
  "crf": Package({
    _CONTRIB + "chains":
      "crf_decode crf_log_likelihood crf_log_norm crf_sequence_score viterbi_decode"},
    advice="use crf_log_likelihood and crf_decode"),
  "data": Package({
    "tf.data": "Dataset FixedLengthRecordDataset TFRecordDataset TextLineDataset Iterator",
    "tf.data.experimental":
      "AUTOTUNE Counter CsvDataset Optional RandomDataset Reducer SqlDataset TFRecordWriter "
      "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_sparse_batch "
      "enumerate_dataset get_next_as_optional get_single_element group_by_reducer "
      "group_by_window ignore_errors make_batched_features_dataset make_csv_dataset "
      "make_saveable_from_iterator map_and_batch parallel_interleave parse_example_dataset "
      "prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat "
      "unbatch unique",
    _CONTRIB + "dataset_transformations":
      "batch_and_drop_remainder padded_batch_and_drop_remainder sloppy_interleave"},
    advice="use the methods of tf.data.Dataset"),
  "deprecated": Package({
    "tf1ps.v1": "audio_summary histogram_summary image_summary merge_all_summaries merge_summary "
                "scalar_summary"}),
  "distributions": Package({
    "tf.distributions":
      "Bernoulli Beta Categorical Dirichlet DirichletMultinomial Distribution Exponential "
      "FULLY_REPARAMETERIZED Gamma Laplace Multinomial NOT_REPARAMETERIZED Normal RegisterKL "
      "ReparameterizationType StudentT Uniform kl_divergence",
    "tensorflow_probability": "bijectors",
    "tensorflow_probability.distributions":
      "Autoregressive BatchReshape Binomial Cauchy Chi2 Deterministic ExpRelaxedOneHotCategorical "
      "Geometric HalfNormal Independent InverseGamma Kumaraswamy Logistic Mixture "
      "MixtureSameFamily MultivariateNormalDiag MultivariateNormalDiagPlusLowRank "
      "MultivariateNormalFullCovariance MultivariateNormalTriL NegativeBinomial "
      "OneHotCategorical Poisson PoissonLogNormalQuadratureCompound QuantizedDistribution "
      "RelaxedBernoulli RelaxedOneHotCategorical SinhArcsinh TransformedDistribution "
      "VectorDeterministic WishartCholesky=WishartTriL normal_conjugates_known_scale_posterior "
      "normal_conjugates_known_scale_predictive quadrature_scheme_lognormal_gauss_hermite "
      "quadrature_scheme_lognormal_quantiles",
    "tensorflow_probability.math":
      "fill_triangular fill_triangular_inverse reduce_weighted_logsumexp softplus_inverse",
    "tensorflow_probability.stats":
      "assign_log_moving_mean_exp assign_moving_mean_variance auto_correlation percentile",
    "tensorflow_probability.util": "SeedStream"},
    advice=_TFP),
  "eager": Package({
    "tf": "GradientTape TensorSpec Variable custom_gradient enable_eager_execution "
          "executing_eagerly function make_template py_func"},
    advice="use the names of TensorFlow 2, such as tf.GradientTape"),
  "estimator": Package({
    "tf1ps.v1.estimator": "add_metrics",
    "tf1ps.v1.estimator.experimental":
      "InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn "
      "dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook "
      "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
      "stop_if_no_decrease_hook stop_if_no_increase_hook",
    _CONTRIB + "extenders": "clip_gradients_by_norm forward_features",
    _CONTRIB + "heads":
      "binary_classification_head logistic_regression_head multi_class_head "
      "poisson_regression_head regression_head"},
    advice="use the heads and estimators of tf.estimator, and for several GPUs one worker each"),
  "factorization": Package({"tf1ps.v1.estimator.experimental": "KMeansClustering=KMeans"},
                           advice="use tf.estimator.experimental.KMeans"),
  "feature_column": Package({
    "tf.feature_column":
      "sequence_categorical_column_with_hash_bucket sequence_categorical_column_with_identity "
      "sequence_categorical_column_with_vocabulary_file "
      "sequence_categorical_column_with_vocabulary_list sequence_numeric_column"},
    advice="use tf.keras.experimental.SequenceFeatures"),
  "framework": Package({
    "tf": "TensorSpec argsort convert_to_tensor_or_sparse_tensor is_tensor nest "
          "py_func sort",
    "tf.train": "assert_global_step create_global_step get_global_step get_or_create_global_step "
                "init_from_checkpoint list_variables load_checkpoint load_variable",
    "tf.debugging": "assert_scalar assert_same_float_dtype"},
    # The names of the first module count: `arg_scope` of the second is itself a module.
    libraries=["tf_slim.ops.arg_scope", "tf_slim.ops.variables", "tf_slim.ops.framework_ops"],
    lost="BoundedTensorSpec RecordInput assert_scalar_int convolutional_delta_orthogonal "
         "convolutional_orthogonal_1d convolutional_orthogonal_2d convolutional_orthogonal_3d "
         "deprecated_arg_values deprecated_args fuse_op get_placeholders "
         "load_and_remap_matrix_initializer load_embedding_initializer "
         "load_linear_multiclass_bias_initializer load_variable_slot_initializer "
         "prepend_name_scope reduce_sum_n remove_squeezable_dimensions smart_case smart_cond "
         "smart_constant_value strip_name_scope with_same_shape with_shape zero_initializer",
    path="python.ops"),
  "hooks": Package({"tf.train": "ProfilerHook"}),
  "keras": Package({
    "tf.keras":
      "Input Model Sequential activations applications backend callbacks constraints datasets "
      "initializers layers losses metrics models optimizers preprocessing regularizers utils"},
    advice="use tf.keras", path="api", files={"keras": "tf.keras"}),
  "layers": Package(
    _LAYERS, libraries=["tf_slim.layers"], lost=_LOST_LAYERS, path="python.layers",
    advice="other feature columns are in tf.feature_column, the rest in TensorFlow 1.15 only"),
  "learn": Package({
    "tf1ps.v1.contrib":
      "datasets=learn_datasets experiment=learn_experiment learn_runner=learn_experiment "
      "export_strategy=learn_exports utils=learn_exports estimators=learn_config "
      "run_config=learn_config",
    _CONTRIB + "learn_config": "ModeKeys RunConfig TaskType",
    _CONTRIB + "learn_experiment": "Experiment",
    _CONTRIB + "learn_exports": "ExportStrategy make_export_strategy"},
    advice="its estimators are in TensorFlow 1.15 only. Those of tf.estimator take the place, with "
           "the columns of tf.feature_column and the EstimatorSpec of their model_fn",
    path="python.learn"),
  "legacy_seq2seq": Package({
    _CONTRIB + "sequences":
      "rnn_decoder sequence_loss=mean_sequence_loss sequence_loss_by_example"},
    advice="use tf.nn.dynamic_rnn"),
  "lookup": Package({
    "tf.lookup": "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
    _CONTRIB + "tables":
      "HashTable MutableDenseHashTable MutableHashTable index_table_from_file "
      "index_table_from_tensor index_to_string_table_from_file "
      "index_to_string_table_from_tensor"},
    advice="use tf.lookup"),
  "losses": Package(libraries=["tf_slim.losses"], advice="use tf.losses", path="python.losses"),
  "metrics": Package({
    "tf": "confusion_matrix",
    "tf.sets": "set_difference=difference set_intersection=intersection set_size=size "
               "set_union=union"},
    libraries=["tf_slim.metrics"], advice="use tf.metrics"),
  "nccl": Package({
    _INTERNALS + "ops_nccl_ops": "all_max all_min all_prod all_sum broadcast reduce_sum"},
    path="python.ops", files={"nccl_ops": _INTERNALS + "ops_nccl_ops"}),
  "nn": Package({
    "tf.nn": "conv1d_transpose",
    _CONTRIB + "sequences":
      "deprecated_flipped_sigmoid_cross_entropy_with_logits "
      "deprecated_flipped_softmax_cross_entropy_with_logits "
      "deprecated_flipped_sparse_softmax_cross_entropy_with_logits"},
    advice="use tf.nn"),
  "opt": Package({
    "tf1ps.transfer": "LazyAdamOptimizer",
    _CONTRIB + "weight_decay":
      "AdamWOptimizer DecoupledWeightDecayExtension MomentumWOptimizer "
      "clip_gradients_by_global_norm extend_with_decoupled_weight_decay"},
    advice="use an optimizer of tf.train"),
  "optimizer_v2": Package({
    "tf.train":
      "AdadeltaOptimizer AdagradOptimizer AdamOptimizer GradientDescentOptimizer "
      "MomentumOptimizer OptimizerV2=Optimizer RMSPropOptimizer"}),
  "predictor": Package({_CONTRIB + "predictors": "from_estimator from_saved_model"},
                       advice="use from_estimator"),
  "proto": Package({"tf.io": "decode_proto encode_proto"}),
  "rnn": Package({
    "tf1ps.v1.nn.rnn_cell":
      "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
      "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
    "tf.nn": "static_rnn static_bidirectional_rnn static_state_saving_rnn",
    _CONTRIB + "fused_cells": "LSTMBlockCell LSTMBlockFusedCell TimeReversedFusedRNN",
    _CONTRIB + "sequences":
      "stack_bidirectional_dynamic_rnn stack_bidirectional_rnn transpose_batch_time"},
    advice="use a cell of tf.nn.rnn_cell; a checkpoint with another cell's variables needs "
           "TensorFlow 1.15"),
  "seq2seq": Package({_CONTRIB + "sequences": "hardmax sequence_loss tile_batch"},
                     advice="no library of today has it. Write the decoder with tf.while_loop, or "
                            "stay with TensorFlow 1.15"),
  "session_bundle": Package({"tf1ps.v1.contrib": "exporter=bundle_exporter"},
                            advice="use tf.saved_model"),
  "signal": Package({
    "tf.signal":
      "frame hamming_window hann_window inverse_stft inverse_stft_window_fn "
      "linear_to_mel_weight_matrix mfccs_from_log_mel_spectrograms overlap_and_add stft"}),
  "slim": Package(
    {**_LAYERS, "tf": "nest"}, libraries=["tf_slim"],
    lost=_LOST_LAYERS + " scattered_embedding_lookup sparse_feature_cross target_column",
    path="python.slim"),
  "staging": Package({_INTERNALS + "ops_data_flow_ops": "StagingArea"}),
  "stateless": Package({
    "tf.random":
      "stateless_multinomial stateless_random_normal=stateless_normal "
      "stateless_random_uniform=stateless_uniform "
      "stateless_truncated_normal"}),
  "summary": Package({
    _INTERNALS + "ops_summary_ops_v2":
      "all_summary_ops=all_v2_summary_ops always_record_summaries audio create_file_writer "
      "create_summary_file_writer eval_dir flush generic graph histogram image import_event "
      "initialize never_record_summaries record_summaries_every_n_global_steps scalar "
      "should_record_summaries summary_writer_initializer_op"},
    advice="use tf.summary"),
  "tensorboard": Package({"tensorboard": "plugins"}, advice="install the package tensorboard"),
  "tpu": Package({
    "tf1ps.v1.estimator.tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimatorSpec",
    "tf.tpu": "bfloat16_scope",
    "tf1ps.v1.contrib": "tpu_config=tpu tpu_estimator=tpu tpu_optimizer=tpu"},  # its files
    advice="use tf.estimator, without a TPU", path="python.tpu"),
  "training": Package(
    {_CONTRIB + "hparams": "HParams parse_values", "tf.train": "checkpoints_iterator"},
    libraries=["tf_slim.training.training", "tf_slim.training.evaluation"],
    lost="FeedingQueueRunner NextQueuedSequenceBatch SequenceQueueingStateSaver "
         "batch_sequences_with_states bucket bucket_by_sequence_length rejection_sample "
         "resample_at_rate stratified_sample weighted_resample",
    advice="use the methods of tf.data.Dataset", path="python.training",
    files={"device_setter": "tf1ps.placement", "evaluation": "tf_slim.training.evaluation",
           "hparam": _CONTRIB + "hparams", "training": "tf_slim.training.training"}),
  "util": Package({"tf": "constant_value=get_static_value make_ndarray make_tensor_proto"}),
}

# {package without heirs: what to use}. A program may import it; only a use is refused.
REFUSED = {
  "all_reduce": "tf1ps reduces gradients by itself: `tf1ps docs replication`",
  "bayesflow": _TFP,
  "boosted_trees": "use the package tensorflow-decision-forests",
  "constrained_optimization": "use the package tensorflow-constrained-optimization",
  "copy_graph": "use tf.import_graph_def",
  "cudnn_rnn": "use a cell of tf.nn.rnn_cell with tf.nn.dynamic_rnn, or CuDNNLSTM and CuDNNGRU of "
               "tf.keras.layers",
  "distribute": "name ps and workers in TF_CONFIG, without a strategy, or use "
                "tf.distribute.MirroredStrategy on one machine",
  "fused_conv": "use tf.nn.conv2d and tf.nn.bias_add",
  "graph_editor": "use tf.import_graph_def with input_map",
  "grid_rnn": "use a cell of tf.nn.rnn_cell",
  "image": "use tf.image; tf.raw_ops.ImageProjectiveTransformV2 rotates and moves",
  "input_pipeline": "use tf.data",
  "integrate": "use tfp.math.ode of the package tensorflow-probability",
  "kernel_methods": "use tf.estimator.LinearClassifier",
  "linear_optimizer": "use tf.estimator.experimental.LinearSDCA",
  "memory_stats": "use tf.config.experimental.get_memory_info",
  "meta_graph_transform": "use tf.graph_util",
  "mixed_precision": "use tf.mixed_precision.MixedPrecisionLossScaleOptimizer",
  "quantization": "use tf.quantization",
  "saved_model": "use tf.keras.models.save_model and load_model",
  "tensorrt": "use tf.experimental.tensorrt of TensorFlow 2",
  "tfprof": "use tf.profiler",
  "timeseries": "use tfp.sts of the package tensorflow-probability",
}
REFUSED.update(dict.fromkeys(["decision_trees", "tensor_forest"], REFUSED["boosted_trees"]))
REFUSED.update(dict.fromkeys(["model_pruning", "quantize"],
                             "use the package tensorflow-model-optimization"))
REFUSED.update(dict.fromkeys(
  ["bigtable", "cloud", "ffmpeg", "hadoop", "ignite", "kafka", "kinesis", "libsvm"],
  "use the package tensorflow-io"))
REFUSED.update(dict.fromkeys(
  ["labeled_tensor", "nearest_neighbor", "periodic_resample", "receptive_field", "recurrent",
   "reduce_slice_ops", "remote_fused_graph", "resampler", "rpc", "solvers", "sparsemax", "specs",
   "stat_summarizer", "testing", "text"], ""))
