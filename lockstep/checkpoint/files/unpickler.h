#pragma once

// The stack machine behind unpickle(). Internal to pickle.cpp and unpickler.cpp.

#include <unordered_map>

#include "lockstep/checkpoint/files/pickle.h"

namespace lockstep::checkpoint {

class Unpickler {
 public:
  Unpickler(const InputFile& file, std::string_view bytes, std::uint64_t begin)
      : file_(file), bytes_(bytes), begin_(begin) {}

  Pickle run();

 private:
  using Kind = PickledValue::Kind;
  using Number = std::uint32_t;

  // Each family of opcodes takes its own and says so.
  bool framing(unsigned char opcode);
  bool constant(unsigned char opcode);
  bool number(unsigned char opcode);
  bool text(unsigned char opcode);
  bool container(unsigned char opcode);
  bool memo(unsigned char opcode);
  bool object(unsigned char opcode);

  // The bytes of the opcode's argument.
  std::string_view take(std::uint64_t count);
  template <class Field>
  Field field();
  std::string_view line();

  void push(PickledValue value);
  void push_number(Number number);
  Number pop();
  std::vector<Number> pop_to_mark();
  void push_items(Kind kind, std::vector<Number> items);
  void push_integer(std::string_view little_endian);
  void push_decimal(std::string_view digits);
  void put_into_top(const std::vector<Number>& items, bool pairs);
  void call(Number function, Number arguments);
  void remember(std::uint32_t slot);
  void recall(std::uint32_t slot);

  [[noreturn]] void refuse(const std::string& what) const;

  const InputFile& file_;
  const std::string_view bytes_;
  const std::uint64_t begin_;
  std::size_t next_ = 0;  // behind what was read
  std::size_t opcode_ = 0;
  Pickle made_;
  std::vector<Number> stack_;
  std::vector<std::size_t> marks_;  // how high the stack was
  std::unordered_map<std::uint32_t, Number> memo_;
};

}  // namespace lockstep::checkpoint
