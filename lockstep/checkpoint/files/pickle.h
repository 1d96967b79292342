#pragma once

// Python's pickles, read as data. Nothing that a pickle names is looked up, made or called: a call stays a value of its
// own, with the name of what would be called and the arguments. What a call means, who wants to know decides.
//
// The opcodes are those of protocols 2 to 5 (CPython's pickletools), which torch.save writes, and Python 2's INT.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {

struct PickledValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,     ///< integer: 0 or 1
    integer,     ///< of 64 bits
    large,       ///< text: an integer of more bits, its bytes little-endian
    real,        ///< real
    text,        ///< text
    bytes,       ///< text
    tuple,       ///< items
    list,        ///< items
    set,         ///< items
    dictionary,  ///< items: key, value, key, value
    global,      ///< text: the module, name: the class or function in it
    call,        ///< of function with arguments; items: what was put into the result, as into a dictionary
    outside      ///< what the pickler gave a name of its own; arguments: that name
  };
  Kind kind = Kind::none;
  std::uint32_t function = 0;  ///< the number of a value, as all items are
  std::uint32_t arguments = 0;
  std::uint64_t offset = 0;  ///< in the file, of the opcode that made it
  std::int64_t integer = 0;
  double real = 0;
  std::string_view text = {};  ///< lies in the pickle's bytes
  std::string_view name = {};
  std::vector<std::uint32_t> items = {};
};

/// Values may be items of several others, of themselves too: whoever walks them counts the steps.
struct Pickle {
  std::vector<PickledValue> values;
  std::uint32_t root = 0;
  std::size_t bytes = 0;  ///< up to and with its STOP

  const PickledValue& at(std::uint32_t number) const { return values[number]; }
};

/// The pickle that `bytes` begin with, which lie in `file` from `begin` and must outlive the result. UsageError naming
/// file, offset and opcode when they end in it, an opcode is unknown, finds nothing or something else than it needs on
/// the stack, wants a memo that was not written, or one of the limits is passed: 4 Mi values, a stack of 1 Mi, 1000
/// marks.
Pickle unpickle(const InputFile& file, std::string_view bytes, std::uint64_t begin);

/// What a person is told of a value: "a dictionary", "12", "argparse.Namespace".
std::string described(const Pickle& pickle, const PickledValue& value);

}  // namespace lockstep::checkpoint
