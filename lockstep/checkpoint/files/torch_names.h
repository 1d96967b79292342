#pragma once

// The names that torch's pickles use. Pure functions, thread-safe.

#include <string>

#include "lockstep/checkpoint/files/pickle.h"

namespace lockstep::checkpoint {

/// "module.name" of a global; "" of anything else.
std::string full_name(const PickledValue& value);

/// The functions that make a dense tensor of a storage.
bool is_tensor_function(const std::string& function);

/// Whether the dtype is among the function's arguments, not the storage's.
bool has_own_dtype(const std::string& function);

/// Those that make a parameter of a tensor, their first argument.
bool is_parameter_function(const std::string& function);

/// The one that makes a tensor of a class, with attributes.
bool is_subclass_function(const std::string& function);

/// Whether a tensor of the class is what its numbers are.
bool is_plain_class(const std::string& name);

/// Whether the value is a dictionary or an OrderedDict, whose items are then what items_of() says.
bool is_dictionary(const Pickle& pickle, const PickledValue& value);

/// Key, value, key, value. Those that an OrderedDict of Python 2 was made with come first.
std::vector<std::uint32_t> items_of(const Pickle& pickle, const PickledValue& value);

/// Whether what lies outside of the pickle is a storage.
bool names_storage(const Pickle& pickle, const PickledValue& outside);

/// safetensors' name of the dtype of a storage ("torch.cuda.FloatStorage": "F32"), or of a dtype ("torch.uint16"); ""
/// when it is none that both have.
std::string dtype_of_storage(const std::string& name);
std::string dtype_of_torch(const std::string& name);

/// The other way round: "FloatStorage", null where torch has none; "uint16".
const char* storage_of_dtype(const std::string& dtype);
const char* torch_of_dtype(const std::string& dtype);

}  // namespace lockstep::checkpoint
