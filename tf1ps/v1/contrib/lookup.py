"""`tf.contrib.lookup`: tables are in tf.lookup, and those made in one call are written anew."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf.lookup": "KeyValueTensorInitializer TextFileIndex TextFileInitializer",
      "tf1ps.v1.contrib.tables":
          "HashTable MutableDenseHashTable MutableHashTable index_table_from_file "
          "index_table_from_tensor index_to_string_table_from_file "
          "index_to_string_table_from_tensor",
    },
    advice="use tf.lookup")
