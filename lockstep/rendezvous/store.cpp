#include "lockstep/rendezvous/store.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <optional>

#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

std::size_t bytes_of(const StoreAsk& ask) {
  std::size_t bytes = 0;
  for (const std::string& key : ask.keys) bytes += key.size();
  for (const std::string& value : ask.values) bytes += value.size();
  return bytes;
}

void refuse(StoreAnswer& answer, std::string why) {
  answer.done = false;
  answer.why = std::move(why);
}

std::string too_long(const char* what, std::size_t size, std::size_t longest) {
  return std::string(what) + " of " + std::to_string(size) + " bytes, not at most " + std::to_string(longest);
}

bool has_right_shape(const StoreAsk& ask) {
  const std::size_t keys = ask.keys.size(), values = ask.values.size();
  switch (StoreCall(ask.what)) {
    case StoreCall::set:
      return keys > 0 && keys == values;
    case StoreCall::get:
    case StoreCall::wait:
    case StoreCall::check:
      return keys > 0 && values == 0;
    case StoreCall::add:
    case StoreCall::delete_key:
      return keys == 1 && values == 0;
    case StoreCall::append:
      return keys == 1 && values == 1;
    case StoreCall::compare_set:
      return keys == 1 && values == 2;
    case StoreCall::num_keys:
      return keys == 0 && values == 0;
  }
  return false;  // no call of ours
}

// Why the ask cannot be followed, whatever the store holds; empty: it can.
std::string fault_of(const StoreAsk& ask) {
  if (!has_right_shape(ask))
    return "call " + std::to_string(ask.what) + " with " + std::to_string(ask.keys.size()) + " keys and " +
           std::to_string(ask.values.size()) + " values is none of the store's";
  if (ask.keys.size() > kMostKeysAtOnce)
    return std::to_string(ask.keys.size()) + " keys at once, not at most " + std::to_string(kMostKeysAtOnce);
  for (const std::string& key : ask.keys)
    if (key.size() > kLongestKey) return too_long("a key", key.size(), kLongestKey);
  for (const std::string& value : ask.values)
    if (value.size() > kLongestValue) return too_long("a value", value.size(), kLongestValue);
  if (const std::size_t bytes = bytes_of(ask); bytes > kMostBytesAtOnce)
    return too_long("keys and values", bytes, kMostBytesAtOnce);
  return {};
}

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return {};
  return number;
}

}  // namespace

std::vector<Store::Reply> Store::ask(std::uint64_t client, const StoreAsk& ask) {
  std::vector<Reply> replies;
  if (std::string fault = fault_of(ask); !fault.empty()) {
    replies.push_back({client, StoreAnswer{.id = ask.id, .done = false, .why = std::move(fault)}});
    return replies;
  }
  const StoreCall call = StoreCall(ask.what);
  if (call == StoreCall::get || call == StoreCall::wait) {
    wait({client, ask.id}, ask, replies);
    return replies;
  }
  replies.push_back({client, change(ask)});
  if (call == StoreCall::check || call == StoreCall::delete_key || call == StoreCall::num_keys) return replies;
  for (const std::string& key : ask.keys) wake(key, replies);
  return replies;
}

StoreAnswer Store::change(const StoreAsk& ask) {
  StoreAnswer answer{.id = ask.id};
  switch (StoreCall(ask.what)) {
    case StoreCall::set:
      for (std::size_t i = 0; i < ask.keys.size() && put(ask.keys[i], ask.values[i], answer);) ++i;
      break;
    case StoreCall::add:
      add(ask, answer);
      break;
    case StoreCall::append: {
      const auto found = values_.find(ask.keys[0]);
      std::string whole = (found == values_.end() ? "" : found->second) + ask.values[0];
      answer.number = std::int64_t(whole.size());
      if (whole.size() > kLongestValue)
        refuse(answer, too_long("a value", whole.size(), kLongestValue));
      else
        put(ask.keys[0], std::move(whole), answer);
      break;
    }
    case StoreCall::compare_set:
      compare_set(ask, answer);
      break;
    case StoreCall::check:
      answer.number = std::ranges::count_if(ask.keys, [&](const std::string& key) { return values_.contains(key); });
      break;
    case StoreCall::delete_key:
      if (const auto found = values_.find(ask.keys[0]); found != values_.end()) {
        bytes_ -= found->first.size() + found->second.size();
        values_.erase(found);
        answer.number = 1;
      }
      break;
    default:  // num_keys: the others wait
      answer.number = std::int64_t(values_.size());
  }
  return answer;
}

void Store::add(const StoreAsk& ask, StoreAnswer& answer) {
  const auto found = values_.find(ask.keys[0]);
  const std::optional<std::int64_t> before = found == values_.end() ? 0 : whole_number(found->second);
  if (!before) return refuse(answer, "add: the value of '" + base::shown(ask.keys[0]) + "' is no whole number");
  if (__builtin_add_overflow(*before, ask.number, &answer.number))
    return refuse(answer, "add: the sum at '" + base::shown(ask.keys[0]) + "' is beyond 64 bits");
  put(ask.keys[0], std::to_string(answer.number), answer);
}

void Store::compare_set(const StoreAsk& ask, StoreAnswer& answer) {
  const std::string &expected = ask.values[0], &wanted = ask.values[1];
  const auto found = values_.find(ask.keys[0]);
  const bool there = found != values_.end();
  if (there ? found->second == expected : expected.empty()) {
    if (put(ask.keys[0], wanted, answer)) answer.values = {wanted};
  } else {
    answer.values = {there ? found->second : expected};
  }
}

bool Store::put(const std::string& key, std::string value, StoreAnswer& answer) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const std::size_t after = bytes_ - before + key.size() + value.size();
  const bool too_many = found == values_.end() && values_.size() >= kMostKeys;
  if (too_many || after > kMostStoreBytes) {
    refuse(answer,
           "the store is full: " + std::to_string(values_.size()) + " keys, " + std::to_string(bytes_) + " bytes");
    return false;
  }
  bytes_ = after;
  values_.insert_or_assign(key, std::move(value));
  return true;
}

// Looked for from one on, and at last from the beginning: a key may have been deleted meanwhile. Their number: none.
std::size_t Store::missing_key(const std::vector<std::string>& keys, std::size_t from) const {
  const auto is_missing = [this](const std::string& key) { return !values_.contains(key); };
  auto missing = std::find_if(keys.begin() + std::ptrdiff_t(from), keys.end(), is_missing);
  if (missing == keys.end()) missing = std::ranges::find_if(keys, is_missing);
  return std::size_t(missing - keys.begin());
}

void Store::wait(const Name& name, const StoreAsk& ask, std::vector<Reply>& replies) {
  const std::size_t missing = missing_key(ask.keys, 0);
  if (missing == ask.keys.size()) return replies.push_back({name.first, give(ask)});
  StoreAnswer answer{.id = ask.id};
  const auto first = waiters_.lower_bound({name.first, std::numeric_limits<std::int64_t>::min()});
  const auto last = waiters_.upper_bound({name.first, std::numeric_limits<std::int64_t>::max()});
  if (waiters_.contains(name))
    refuse(answer, "another ask with the number " + std::to_string(ask.id) + " waits");
  else if (std::size_t(std::distance(first, last)) >= kMostWaiting)
    refuse(answer, "more than " + std::to_string(kMostWaiting) + " asks wait");
  else if (bytes_ + bytes_of(ask) > kMostStoreBytes)
    refuse(answer, "the store is full: " + std::to_string(bytes_) + " bytes");
  if (!answer.done) return replies.push_back({name.first, std::move(answer)});
  bytes_ += bytes_of(ask);
  waiting_for_.emplace(ask.keys[missing], name);
  waiters_[name] = {.ask = ask, .missing = missing};
}

// Each waiter is looked at when the key comes that it misses, and goes on from there: a thousand that wait for a
// thousand keys cost some million looks, not a thousand million.
void Store::wake(const std::string& key, std::vector<Reply>& replies) {
  if (!values_.contains(key)) return;
  std::vector<Name> woken;
  const auto [first, last] = waiting_for_.equal_range(key);
  for (auto at = first; at != last; ++at) woken.push_back(at->second);
  waiting_for_.erase(first, last);
  for (const Name& name : woken) {
    const auto found = waiters_.find(name);
    Waiter& waiter = found->second;
    waiter.missing = missing_key(waiter.ask.keys, waiter.missing);
    if (waiter.missing < waiter.ask.keys.size()) {
      waiting_for_.emplace(waiter.ask.keys[waiter.missing], name);
      continue;
    }
    replies.push_back({name.first, give(waiter.ask)});
    bytes_ -= bytes_of(waiter.ask);
    waiters_.erase(found);
  }
}

// One value fits for sure.
StoreAnswer Store::give(const StoreAsk& ask) const {
  StoreAnswer answer{.id = ask.id};
  if (StoreCall(ask.what) == StoreCall::wait) return answer;
  std::size_t bytes = 0;
  for (const std::string& key : ask.keys) {
    const std::string& value = values_.at(key);
    bytes += value.size();
    if (bytes > kMostBytesAtOnce) break;
    answer.values.push_back(value);
  }
  return answer;
}

void Store::end_wait(std::map<Name, Waiter>::iterator waiter) {
  const auto [first, last] = waiting_for_.equal_range(waiter->second.ask.keys[waiter->second.missing]);
  waiting_for_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == waiter->first; }));
  bytes_ -= bytes_of(waiter->second.ask);
  waiters_.erase(waiter);
}

void Store::forget(std::uint64_t client, std::int64_t id) {
  if (const auto found = waiters_.find({client, id}); found != waiters_.end()) end_wait(found);
}

void Store::leave(std::uint64_t client) {
  for (auto at = waiters_.lower_bound({client, std::numeric_limits<std::int64_t>::min()});
       at != waiters_.end() && at->first.first == client;)
    end_wait(at++);
}

}  // namespace lockstep::rendezvous
