#include "lockstep/rendezvous/node_list.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kMaxName = 253;   // RFC 1035: 255 bytes on the wire
constexpr std::size_t kMaxDigits = 10;  // more than any machine numbers its nodes with
constexpr std::size_t kMaxShown = 200;  // of a text, in a message

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_';
}

class NodeListParser {
 public:
  NodeListParser(std::string_view variable, std::string_view text) : variable_(variable), text_(text) {}

  std::vector<std::string> parse() {
    std::vector<std::string> names;
    do {
      const std::size_t begin = at_;
      const std::vector<std::string> more = name(kMaxNodes - names.size());
      for (const std::string& one : more) {
        if (one.size() > kMaxName) wrong(begin, "the name has more than " + std::to_string(kMaxName) + " characters");
        if (!known_.insert(one).second) wrong(begin, "node " + one + " is there twice");
        names.push_back(one);
      }
    } while (take(','));
    if (at_ != text_.size()) wrong(at_, "no host name has a character " + found());
    return names;
  }

 private:
  // One word of the list, with all that its brackets make of it.
  std::vector<std::string> name(std::size_t room) {
    std::vector<std::string> made{""};
    const std::size_t begin = at_;
    for (bool more = true; more;) {
      const std::size_t plain = at_;
      while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
      // Before anything is put together: the names of a list together are as long as a few of these at most.
      if (at_ - plain > kMaxName) wrong(plain, "the name has more than " + std::to_string(kMaxName) + " characters");
      append(made, {std::string(text_.substr(plain, at_ - plain))});
      const std::size_t bracket = at_;
      more = take('[');
      if (more) append(made, numbers(bracket, room / made.size()));
      if (made.front().size() > kMaxName)
        wrong(begin, "the name has more than " + std::to_string(kMaxName) + " characters");
    }
    if (at_ == begin) wrong(at_, "a host name is missing");
    if (made.size() > room) too_many(begin);
    return made;
  }

  // Each of `made` with each of `ends` behind it.
  static void append(std::vector<std::string>& made, const std::vector<std::string>& ends) {
    if (ends.size() == 1) {  // in place: a long text of many brackets with one number each
      for (std::string& name : made) name += ends.front();
      return;
    }
    std::vector<std::string> longer;
    longer.reserve(made.size() * ends.size());
    for (const std::string& beginning : made)
      for (const std::string& end : ends) longer.push_back(beginning + end);
    made = std::move(longer);
  }

  // What stands between brackets, the opening one of which has been read.
  std::vector<std::string> numbers(std::size_t bracket, std::size_t room) {
    std::vector<std::string> all;
    do {
      const std::size_t begin = at_;
      const std::string_view low = digits();
      const std::string_view high = take('-') ? digits() : low;
      const std::uint64_t first = value(low);
      const std::uint64_t last = value(high);
      if (last < first) wrong(begin, "the range " + std::string(low) + "-" + std::string(high) + " counts down");
      if (last - first >= room - std::min(room, all.size())) too_many(bracket);
      for (std::uint64_t number = first; number <= last; ++number) {
        const std::string plain = std::to_string(number);
        all.push_back(std::string(low.size() - std::min(low.size(), plain.size()), '0') + plain);
      }
    } while (take(','));
    if (!take(']')) {
      if (at_ == text_.size()) wrong(bracket, "the bracket is not closed");
      wrong(at_, found() + " stands where a ',' or ']' is due");
    }
    return all;
  }

  std::string_view digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) wrong(at_, found() + " stands where a number is due");
    if (at_ - begin > kMaxDigits) wrong(begin, "the number has more than " + std::to_string(kMaxDigits) + " digits");
    return text_.substr(begin, at_ - begin);
  }

  static std::uint64_t value(std::string_view digits) {
    std::uint64_t sum = 0;
    for (const char digit : digits) sum = 10 * sum + std::uint64_t(digit - '0');
    return sum;
  }

  bool take(char wanted) {
    const bool there = at_ < text_.size() && text_[at_] == wanted;
    at_ += there;
    return there;
  }

  std::string found() const { return at_ == text_.size() ? "the end" : "'" + base::shown(text_.substr(at_, 1)) + "'"; }

  [[noreturn]] void too_many(std::size_t place) const {
    wrong(place, "these are more than " + std::to_string(kMaxNodes) + " nodes");
  }

  [[noreturn]] void wrong(std::size_t place, const std::string& why) const {
    throw UsageError("environment: " + std::string(variable_) + "=" + base::shown(text_.substr(0, kMaxShown)) +
                     (text_.size() > kMaxShown ? "..." : "") + ": at character " + std::to_string(place + 1) + ": " +
                     why + " (expected for example a[01-03,7],b4)");
  }

  std::string_view variable_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::unordered_set<std::string> known_;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view variable, std::string_view text) {
  return NodeListParser(variable, text).parse();
}

}  // namespace lockstep::rendezvous
