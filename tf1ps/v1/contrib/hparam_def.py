"""The protocol buffer of an HParams: `tensorflow.HParamDef`, as TensorFlow 1.15 writes it."""

from __future__ import annotations

import functools

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {"int64": _Field.TYPE_INT64, "float": _Field.TYPE_FLOAT, "bytes": _Field.TYPE_BYTES,
          "bool": _Field.TYPE_BOOL}
_VALUES = ("int64", "float", "bytes", "int64_list", "float_list", "bytes_list", "bool",
           "bool_list")  # by their numbers, from 1
_NAME = "tensorflow.HParamDef"


def kind_of(of_type: type, is_list: bool) -> str:
  """Returns the name of the field that holds a type; raises ValueError if there is none."""
  for kinds, name in (((bool,), "bool"), ((int,), "int64"), ((str, bytes), "bytes"),
                      ((float,), "float")):
    if issubclass(of_type, kinds):
      return name + ("_list" if is_list else "_value")
  raise ValueError("Unsupported parameter type: %s. There are bool, int, float, str and lists "
                   "of these." % of_type.__name__)


@functools.lru_cache(maxsize=None)
def message_class() -> type:
  """Returns the class HParamDef."""
  file = descriptor_pb2.FileDescriptorProto(
    name="hparam.proto", package="tensorflow", syntax="proto3")
  message = file.message_type.add(name="HParamDef")
  message.field.add(name="hparam", number=1, label=_Field.LABEL_REPEATED,
                    type=_Field.TYPE_MESSAGE, type_name=".%s.HparamEntry" % _NAME)
  for kind, number in _KINDS.items():
    list_of_kind = message.nested_type.add(name=kind.capitalize() + "List")
    list_of_kind.field.add(name="value", number=1, label=_Field.LABEL_REPEATED, type=number)
  value = message.nested_type.add(name="HParamType")
  value.oneof_decl.add(name="kind")
  for number, name in enumerate(_VALUES, 1):
    kind, _, is_list = name.partition("_")
    field = value.field.add(name=name if is_list else name + "_value", number=number,
                            label=_Field.LABEL_OPTIONAL, oneof_index=0,
                            type=_Field.TYPE_MESSAGE if is_list else _KINDS[kind])
    if is_list:
      field.type_name = ".%s.%sList" % (_NAME, kind.capitalize())
  entry = message.nested_type.add(name="HparamEntry")
  entry.options.map_entry = True
  entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
  entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_MESSAGE,
                  type_name=".%s.HParamType" % _NAME)
  pool = descriptor_pool.DescriptorPool()  # TensorFlow 1.15 has the message in the default pool
  pool.Add(file)
  descriptor = pool.FindMessageTypeByName(_NAME)
  if hasattr(message_factory, "GetMessageClass"):
    return message_factory.GetMessageClass(descriptor)
  return message_factory.MessageFactory(pool).GetPrototype(descriptor)
