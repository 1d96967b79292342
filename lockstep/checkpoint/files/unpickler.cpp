#include "lockstep/checkpoint/files/unpickler.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "lockstep/checkpoint/files/little_endian.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kMostValues = std::size_t(1) << 22;
constexpr std::size_t kDeepestStack = std::size_t(1) << 20;
constexpr std::size_t kMostMarks = 1000;
constexpr int kOldestProtocol = 2, kNewestProtocol = 5;

std::string opcode_text(unsigned char opcode) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = std::string("opcode 0x") + kDigits[opcode >> 4] + kDigits[opcode & 15];
  if (opcode > ' ' && opcode < 0x7f) text += std::string(" '") + char(opcode) + "'";
  return text;
}

}  // namespace

Pickle Unpickler::run() {
  while (true) {
    opcode_ = next_;
    const auto opcode = static_cast<unsigned char>(take(1).front());
    if (opcode == '.') break;
    if (!framing(opcode) && !constant(opcode) && !number(opcode) && !text(opcode) && !container(opcode) &&
        !memo(opcode) && !object(opcode))
      refuse("is none of those that torch.save writes");
  }
  made_.root = pop();
  if (!stack_.empty() || !marks_.empty()) refuse("ends the pickle with values left on the stack");
  made_.bytes = next_;
  return std::move(made_);
}

bool Unpickler::framing(unsigned char opcode) {
  if (opcode == 0x80) {  // PROTO
    const int protocol = field<std::uint8_t>();
    if (protocol < kOldestProtocol || protocol > kNewestProtocol)
      refuse("says protocol " + std::to_string(protocol) + "; 2 to 5 are read");
    return true;
  }
  if (opcode != 0x95) return false;
  const auto frame = field<std::uint64_t>();  // FRAME: a hint for reading ahead
  if (frame > bytes_.size() - next_)
    refuse("says a frame of " + std::to_string(frame) + " bytes, " + std::to_string(bytes_.size() - next_) +
           " are there");
  return true;
}

bool Unpickler::constant(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      push({.kind = Kind::none});
      return true;
    case 0x88:
    case 0x89:
      push({.kind = Kind::boolean, .integer = opcode == 0x88});
      return true;
    case '(':
      if (marks_.size() == kMostMarks) refuse("is nested more than " + std::to_string(kMostMarks) + " deep");
      marks_.push_back(stack_.size());
      return true;
    case '0':
      // POP takes a mark when nothing lies on it.
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2': {
      const Number top = pop();
      push_number(top);
      push_number(top);
      return true;
    }
    default:
      return false;
  }
}

bool Unpickler::number(unsigned char opcode) {
  switch (opcode) {
    case 'J':
      push({.kind = Kind::integer, .integer = field<std::int32_t>()});
      return true;
    case 'K':
      push({.kind = Kind::integer, .integer = field<std::uint8_t>()});
      return true;
    case 'M':
      push({.kind = Kind::integer, .integer = field<std::uint16_t>()});
      return true;
    case 'I':
      push_decimal(line());
      return true;
    case 0x8a:
      push_integer(take(field<std::uint8_t>()));
      return true;
    case 0x8b:
      push_integer(take(field<std::uint32_t>()));
      return true;
    case 'G': {  // the one number with its highest byte first
      std::string digits(take(8));
      std::ranges::reverse(digits);
      push({.kind = Kind::real, .real = little<double>(digits, 0)});
      return true;
    }
    default:
      return false;
  }
}

bool Unpickler::text(unsigned char opcode) {
  switch (opcode) {
    case 'U':  // Python 2's str, which torch takes for text
    case 0x8c:
      push({.kind = Kind::text, .text = take(field<std::uint8_t>())});
      return true;
    case 'T':
    case 'X':
      push({.kind = Kind::text, .text = take(field<std::uint32_t>())});
      return true;
    case 0x8d:
      push({.kind = Kind::text, .text = take(field<std::uint64_t>())});
      return true;
    case 'C':
      push({.kind = Kind::bytes, .text = take(field<std::uint8_t>())});
      return true;
    case 'B':
      push({.kind = Kind::bytes, .text = take(field<std::uint32_t>())});
      return true;
    case 0x8e:
    case 0x96:
      push({.kind = Kind::bytes, .text = take(field<std::uint64_t>())});
      return true;
    default:
      return false;
  }
}

bool Unpickler::container(unsigned char opcode) {
  switch (opcode) {
    case ')':
    case ']':
    case '}':
    case 0x8f:
      push({.kind = opcode == ')'   ? Kind::tuple
                    : opcode == ']' ? Kind::list
                    : opcode == '}' ? Kind::dictionary
                                    : Kind::set});
      return true;
    case 't':
      push_items(Kind::tuple, pop_to_mark());
      return true;
    case 'l':
      push_items(Kind::list, pop_to_mark());
      return true;
    case 0x91:
      push_items(Kind::set, pop_to_mark());
      return true;
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<Number> items(std::size_t(opcode - 0x84));
      for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
      push_items(Kind::tuple, std::move(items));
      return true;
    }
    case 'd': {
      const std::vector<Number> items = pop_to_mark();
      push({.kind = Kind::dictionary});
      put_into_top(items, /*pairs=*/true);
      return true;
    }
    case 'a':
      put_into_top({pop()}, /*pairs=*/false);
      return true;
    case 'e':
    case 0x90:
      put_into_top(pop_to_mark(), /*pairs=*/false);
      return true;
    case 's': {
      const Number value = pop(), key = pop();
      put_into_top({key, value}, /*pairs=*/true);
      return true;
    }
    case 'u':
      put_into_top(pop_to_mark(), /*pairs=*/true);
      return true;
    default:
      return false;
  }
}

bool Unpickler::memo(unsigned char opcode) {
  switch (opcode) {
    case 'q':
      remember(field<std::uint8_t>());
      return true;
    case 'r':
      remember(field<std::uint32_t>());
      return true;
    case 0x94:
      remember(std::uint32_t(memo_.size()));
      return true;
    case 'h':
      recall(field<std::uint8_t>());
      return true;
    case 'j':
      recall(field<std::uint32_t>());
      return true;
    default:
      return false;
  }
}

bool Unpickler::object(unsigned char opcode) {
  switch (opcode) {
    case 'c': {
      const std::string_view module = line(), name = line();
      push({.kind = Kind::global, .text = module, .name = name});
      return true;
    }
    case 0x93: {
      const PickledValue &name = made_.at(pop()), &module = made_.at(pop());
      if (name.kind != Kind::text || module.kind != Kind::text) refuse("wants the names of a module and a class");
      push({.kind = Kind::global, .text = module.text, .name = name.text});
      return true;
    }
    case 'R':
    case 0x81: {
      const Number arguments = pop(), function = pop();
      call(function, arguments);
      return true;
    }
    case 0x92: {
      pop();  // arguments by name
      const Number arguments = pop(), function = pop();
      call(function, arguments);
      return true;
    }
    case 'b':
      pop();               // what the object is to take over; it stays what it was made of
      push_number(pop());  // there must be one
      return true;
    case 'Q': {
      const Number name = pop();
      push({.kind = Kind::outside, .arguments = name});
      return true;
    }
    default:
      return false;
  }
}

std::string_view Unpickler::take(std::uint64_t count) {
  if (count > bytes_.size() - next_) {
    if (next_ == opcode_) file_.fail(begin_ + next_, "the pickle ends without its STOP");
    refuse("wants " + std::to_string(count) + " bytes, " + std::to_string(bytes_.size() - next_) +
           " are left in the pickle");
  }
  const std::string_view taken = bytes_.substr(next_, count);
  next_ += count;
  return taken;
}

template <class Field>
Field Unpickler::field() {
  return little<Field>(take(sizeof(Field)), 0);
}

std::string_view Unpickler::line() {
  const std::size_t end = bytes_.find('\n', next_);
  if (end == std::string_view::npos) refuse("wants a line, and none ends");
  const std::string_view text = bytes_.substr(next_, end - next_);
  next_ = end + 1;
  return text;
}

void Unpickler::push(PickledValue value) {
  if (made_.values.size() == kMostValues) refuse("makes more than " + std::to_string(kMostValues) + " values");
  value.offset = begin_ + opcode_;
  made_.values.push_back(std::move(value));
  push_number(Number(made_.values.size() - 1));
}

void Unpickler::push_number(Number number) {
  if (stack_.size() == kDeepestStack) refuse("finds " + std::to_string(kDeepestStack) + " values on the stack");
  stack_.push_back(number);
}

Unpickler::Number Unpickler::pop() {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) refuse("finds nothing on the stack");
  const Number top = stack_.back();
  stack_.pop_back();
  return top;
}

std::vector<Unpickler::Number> Unpickler::pop_to_mark() {
  if (marks_.empty()) refuse("finds no mark on the stack");
  const auto first = stack_.begin() + std::ptrdiff_t(marks_.back());
  std::vector<Number> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

void Unpickler::push_items(Kind kind, std::vector<Number> items) { push({.kind = kind, .items = std::move(items)}); }

void Unpickler::push_integer(std::string_view little_endian) {
  if (little_endian.size() > sizeof(std::int64_t)) return push({.kind = Kind::large, .text = little_endian});
  std::uint64_t value = 0;
  for (std::size_t i = little_endian.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(little_endian[i]);
  const std::size_t unused = 64 - 8 * little_endian.size();
  if (unused > 0 && unused < 64) value = std::uint64_t(std::int64_t(value << unused) >> unused);  // its sign
  push({.kind = Kind::integer, .integer = std::int64_t(value)});
}

void Unpickler::push_decimal(std::string_view digits) {
  if (digits == "00" || digits == "01") return push({.kind = Kind::boolean, .integer = digits == "01"});
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size())
    refuse("wants a decimal number of 64 bits, '" + brief(digits) + "' is there");
  push({.kind = Kind::integer, .integer = value});
}

void Unpickler::put_into_top(const std::vector<Number>& items, bool pairs) {
  if (pairs && items.size() % 2 != 0) refuse("finds a key without a value");
  const Number top = pop();
  PickledValue& target = made_.values[top];
  const bool fits = pairs ? target.kind == Kind::dictionary : target.kind == Kind::list || target.kind == Kind::set;
  if (!fits && target.kind != Kind::call) refuse("puts items into " + described(made_, target));
  // What is appended to a call's result is none of a dictionary, and nobody asks for it.
  if (fits || pairs) target.items.insert(target.items.end(), items.begin(), items.end());
  push_number(top);
}

void Unpickler::call(Number function, Number arguments) {
  if (made_.at(arguments).kind != Kind::tuple) refuse("calls with " + described(made_, made_.at(arguments)));
  push({.kind = Kind::call, .function = function, .arguments = arguments});
}

void Unpickler::remember(std::uint32_t slot) {
  const Number top = pop();
  push_number(top);
  memo_[slot] = top;
}

void Unpickler::recall(std::uint32_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) refuse("wants memo " + std::to_string(slot) + ", which was not written");
  push_number(found->second);
}

void Unpickler::refuse(const std::string& what) const {
  file_.fail(begin_ + opcode_, opcode_text(static_cast<unsigned char>(bytes_[opcode_])) + " " + what);
}

}  // namespace lockstep::checkpoint
