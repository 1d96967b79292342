#include "lockstep/checkpoint/files/torch_names.h"

#include <algorithm>

namespace lockstep::checkpoint {
namespace {

using Kind = PickledValue::Kind;

struct TorchName {
  const char* dtype;
  const char* in_python;
  const char* storage;  // null: such tensors have storages of bytes
};
constexpr TorchName kTorchNames[] = {
    {"F64", "float64", "DoubleStorage"},
    {"F32", "float32", "FloatStorage"},
    {"F16", "float16", "HalfStorage"},
    {"BF16", "bfloat16", "BFloat16Storage"},
    {"C64", "complex64", "ComplexFloatStorage"},
    {"I64", "int64", "LongStorage"},
    {"I32", "int32", "IntStorage"},
    {"I16", "int16", "ShortStorage"},
    {"I8", "int8", "CharStorage"},
    {"U8", "uint8", "ByteStorage"},
    {"BOOL", "bool", "BoolStorage"},
    {"U64", "uint64", nullptr},
    {"U32", "uint32", nullptr},
    {"U16", "uint16", nullptr},
    {"F8_E4M3", "float8_e4m3fn", nullptr},
    {"F8_E5M2", "float8_e5m2", nullptr},
};

const TorchName* find_name(const std::string& dtype) {
  const auto* found = std::ranges::find(kTorchNames, dtype, &TorchName::dtype);
  return found == std::end(kTorchNames) ? nullptr : found;
}

}  // namespace

std::string full_name(const PickledValue& value) {
  if (value.kind != Kind::global) return "";
  return std::string(value.text) + "." + std::string(value.name);
}

bool is_tensor_function(const std::string& function) {
  return function == "torch._utils._rebuild_tensor" || function == "torch._utils._rebuild_tensor_v2" ||
         has_own_dtype(function);
}

bool has_own_dtype(const std::string& function) { return function == "torch._utils._rebuild_tensor_v3"; }

bool is_parameter_function(const std::string& function) {
  return function == "torch._utils._rebuild_parameter" || function == "torch._utils._rebuild_parameter_with_state";
}

bool is_subclass_function(const std::string& function) { return function == "torch._tensor._rebuild_from_type_v2"; }

bool is_plain_class(const std::string& name) {
  return name == "torch.Tensor" || name == "torch._tensor.Tensor" || name == "torch.nn.parameter.Parameter";
}

bool is_dictionary(const Pickle& pickle, const PickledValue& value) {
  if (value.kind == Kind::dictionary) return true;
  return value.kind == Kind::call && full_name(pickle.at(value.function)) == "collections.OrderedDict";
}

std::vector<std::uint32_t> items_of(const Pickle& pickle, const PickledValue& value) {
  if (value.kind != Kind::call) return value.items;
  std::vector<std::uint32_t> items;
  const PickledValue& arguments = pickle.at(value.arguments);
  if (!arguments.items.empty())
    for (const std::uint32_t number : pickle.at(arguments.items[0]).items)
      if (const PickledValue& pair = pickle.at(number); pair.items.size() == 2)
        items.insert(items.end(), pair.items.begin(), pair.items.end());
  items.insert(items.end(), value.items.begin(), value.items.end());
  return items;
}

bool names_storage(const Pickle& pickle, const PickledValue& outside) {
  const PickledValue& id = pickle.at(outside.arguments);
  return id.kind == Kind::tuple && id.items.size() >= 5 && pickle.at(id.items[0]).kind == Kind::text &&
         pickle.at(id.items[0]).text == "storage";
}

std::string dtype_of_storage(const std::string& name) {
  if (name == "torch.storage.UntypedStorage" || name == "torch.UntypedStorage") return "U8";
  for (const TorchName& known : kTorchNames)
    if (known.storage != nullptr &&
        (name == std::string("torch.") + known.storage || name == std::string("torch.cuda.") + known.storage))
      return known.dtype;
  return "";
}

std::string dtype_of_torch(const std::string& name) {
  for (const TorchName& known : kTorchNames)
    if (name == std::string("torch.") + known.in_python) return known.dtype;
  return "";
}

const char* storage_of_dtype(const std::string& dtype) {
  const TorchName* const found = find_name(dtype);
  return found == nullptr ? nullptr : found->storage;
}

const char* torch_of_dtype(const std::string& dtype) {
  const TorchName* const found = find_name(dtype);
  return found == nullptr ? nullptr : found->in_python;
}

}  // namespace lockstep::checkpoint
