"""`tf.contrib.data`: datasets are in tf.data, most transformations in tf.data.experimental."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf.data": "Dataset FixedLengthRecordDataset TFRecordDataset TextLineDataset Iterator",
      "tf.data.experimental":
          "AUTOTUNE Counter CsvDataset Optional RandomDataset Reducer SqlDataset TFRecordWriter "
          "bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_sparse_batch "
          "enumerate_dataset get_next_as_optional get_single_element group_by_reducer "
          "group_by_window ignore_errors make_batched_features_dataset make_csv_dataset "
          "make_saveable_from_iterator map_and_batch parallel_interleave parse_example_dataset "
          "prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat "
          "unbatch unique",
      "tf1ps.v1.contrib.datasets":
          "batch_and_drop_remainder padded_batch_and_drop_remainder sloppy_interleave",
    },
    advice="use the methods of tf.data.Dataset")
