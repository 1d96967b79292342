#include "lockstep/checkpoint/files/pickle.h"

#include <cstdio>

#include "lockstep/checkpoint/files/unpickler.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {

Pickle unpickle(const InputFile& file, std::string_view bytes, std::uint64_t begin) {
  return Unpickler(file, bytes, begin).run();
}

std::string described(const Pickle& pickle, const PickledValue& value) {
  using Kind = PickledValue::Kind;
  switch (value.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.integer != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integer);
    case Kind::large:
      return "an integer of " + std::to_string(value.text.size()) + " bytes";
    case Kind::real: {
      char text[32];
      std::snprintf(text, sizeof text, "%.6g", value.real);
      return text;
    }
    case Kind::text:
      return "'" + brief(value.text) + "'";
    case Kind::bytes:
      return std::to_string(value.text.size()) + " bytes";
    case Kind::tuple:
      return "a tuple";
    case Kind::list:
      return "a list";
    case Kind::set:
      return "a set";
    case Kind::dictionary:
      return "a dictionary";
    case Kind::global:
      return brief(value.text) + "." + brief(value.name);
    case Kind::call: {
      const PickledValue& function = pickle.at(value.function);
      return function.kind == Kind::global ? described(pickle, function) : "the result of a call";
    }
    case Kind::outside:
      return "a storage";
  }
  return "";
}

}  // namespace lockstep::checkpoint
