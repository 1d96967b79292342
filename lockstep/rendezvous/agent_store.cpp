#include "lockstep/rendezvous/agent_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/local_socket.h"
#include "lockstep/rendezvous/variable_reader.h"

namespace lockstep::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Keys = std::vector<std::string>;

constexpr milliseconds kConnectAgain{5};
// For a word that nobody waits for.
constexpr milliseconds kForgetWithin{1'000};

bool ready(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd polled{.fd = fd, .events = events, .revents = 0};
    const int count = poll(&polled, 1, int(std::clamp<long long>(left, 0, 3'600'000)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw_errno("agent store: poll");
    if (Clock::now() >= deadline) return false;
  }
}

[[noreturn]] void throw_gone() {
  throw Error("agent store: the agent has closed the connection: the generation is over, or too many ask");
}

// Behind it the connection's queue is full: the agent takes the next one soon, unless it is stopped.
base::UniqueFd connect_by(const std::string& name, Clock::time_point deadline) {
  for (;;) {
    base::UniqueFd socket = connect_to(name, Carries::bytes);
    if (socket) return socket;
    if (errno != EAGAIN || Clock::now() >= deadline)
      throw_errno("agent store: no agent at " + std::string(kAgentStoreVariable) + "=" + name);
    std::this_thread::sleep_for(kConnectAgain);
  }
}

void require_short(const char* what, const std::string& text, std::size_t longest) {
  if (text.size() > longest)
    throw UsageError("agent store: " + std::string(what) + " of " + std::to_string(text.size()) + " bytes ('" +
                     text.substr(0, 20) + "...'), not at most " + std::to_string(longest));
}

// A key as it can be printed.
std::string quoted(const std::string& key) {
  return "'" + base::shown(key.substr(0, 100)) + "'" + (key.size() > 100 ? "..." : "");
}

std::string seconds(milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", double(time.count()) / 1000);
  return text;
}

// How many of them, with their values if there are any, one message holds.
std::size_t fitting(std::span<const std::string> keys, std::span<const std::string> values) {
  std::size_t bytes = 0, count = 0;
  for (; count < std::min(keys.size(), kMostKeysAtOnce); ++count) {
    bytes += keys[count].size() + (values.empty() ? 0 : values[count].size());
    if (bytes > kMostBytesAtOnce) break;
  }
  return count;
}

// The first ones of `all`, from `from` on.
Keys part(const Keys& all, std::size_t from, std::size_t count) {
  const auto first = all.begin() + std::ptrdiff_t(from);
  return {first, first + std::ptrdiff_t(count)};
}

std::size_t part_from(const Keys& keys, std::size_t from) { return fitting(std::span(keys).subspan(from), {}); }

}  // namespace

std::string agent_store_name(const GetEnv& get) {
  return VariableReader(get, "lockstep run").text(kAgentStoreVariable).value_or("");
}

std::string agent_store_name() {
  return agent_store_name([](const char* name) { return ::getenv(name); });
}

AgentStore::AgentStore(Time timeout, const std::string& name) : timeout_(timeout) {
  if (name.empty())
    throw UsageError("agent store: " + std::string(kAgentStoreVariable) +
                     " is not set: start the program with lockstep run");
  socket_ = connect_by(name, deadline({}));
  const std::optional<Peer> agent = peer_of(socket_.get());
  if (agent && agent->user != geteuid())
    throw Error("agent store: " + name + " is no agent of this user's: " + agent->describe());
}

StoreAnswer AgentStore::ask(StoreAsk ask, Clock::time_point deadline) {
  for (const std::string& key : ask.keys) require_short("a key", key, kLongestKey);
  for (const std::string& value : ask.values) require_short("a value", value, kLongestValue);
  ask.id = ++last_id_;
  const Clock::time_point began = Clock::now();
  send(ask, deadline);
  do {
    while (const std::optional<Message> message = take_message(received_, kLongestMessage)) {
      const auto* answer = std::get_if<StoreAnswer>(&*message);
      if (answer == nullptr || answer->id != ask.id) continue;  // one that came too late for an ask before
      if (!answer->done) throw Error("agent store: " + answer->why);
      return *answer;
    }
  } while (receive(deadline));
  send(StoreForget{.id = ask.id}, Clock::now() + kForgetWithin);
  const std::string what = ask.keys.empty()       ? "there was no answer"
                           : ask.keys.size() == 1 ? quoted(ask.keys[0]) + " did not come"
                                                  : "one of " + std::to_string(ask.keys.size()) + " keys from " +
                                                        quoted(ask.keys[0]) + " on did not come";
  throw Error("agent store: " + what + " within " +
              seconds(std::chrono::duration_cast<milliseconds>(Clock::now() - began)));
}

void AgentStore::send(const Message& message, Clock::time_point deadline) {
  const std::string frame = to_frame(message);
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t count = ::send(socket_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += std::size_t(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      throw_gone();
    } else if (!ready(socket_.get(), POLLOUT, deadline)) {
      shutdown(socket_.get(), SHUT_RDWR);  // half a message is out: nothing can follow it
      throw Error("agent store: the agent takes nothing");
    }
  }
}

// False when the time is over.
bool AgentStore::receive(Clock::time_point deadline) {
  if (!ready(socket_.get(), POLLIN, deadline)) return false;
  std::array<char, 16 * 1024> buffer;
  const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count > 0) received_.append(buffer.data(), std::size_t(count));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) throw_gone();
  return true;
}

void AgentStore::set(const std::string& key, const std::string& value) { multi_set({key}, {value}); }

std::string AgentStore::get(const std::string& key, std::optional<Time> timeout) {
  return multi_get({key}, timeout).front();
}

void AgentStore::wait(const Keys& keys, std::optional<Time> timeout) {
  const Clock::time_point until = deadline(timeout);
  for (std::size_t at = 0, count = 0; at < keys.size(); at += count) {
    count = part_from(keys, at);
    ask({.what = std::int64_t(StoreCall::wait), .keys = part(keys, at, count)}, until);
  }
}

bool AgentStore::check(const Keys& keys) {
  std::size_t there = 0;
  for (std::size_t at = 0, count = 0; at < keys.size() && there == at; at += count) {
    count = part_from(keys, at);
    there +=
        std::size_t(ask({.what = std::int64_t(StoreCall::check), .keys = part(keys, at, count)}, deadline({})).number);
  }
  return there == keys.size();
}

std::int64_t AgentStore::add(const std::string& key, std::int64_t number) {
  return ask({.what = std::int64_t(StoreCall::add), .keys = {key}, .number = number}, deadline({})).number;
}

std::int64_t AgentStore::append(const std::string& key, const std::string& value) {
  return ask({.what = std::int64_t(StoreCall::append), .keys = {key}, .values = {value}}, deadline({})).number;
}

std::string AgentStore::compare_set(const std::string& key, const std::string& expected, const std::string& wanted) {
  const StoreAnswer answer =
      ask({.what = std::int64_t(StoreCall::compare_set), .keys = {key}, .values = {expected, wanted}}, deadline({}));
  if (answer.values.size() != 1) throw Error("agent store: compare_set was answered without a value");
  return answer.values.front();
}

bool AgentStore::delete_key(const std::string& key) {
  return ask({.what = std::int64_t(StoreCall::delete_key), .keys = {key}}, deadline({})).number == 1;
}

void AgentStore::multi_set(const Keys& keys, const Keys& values) {
  if (keys.size() != values.size())
    throw UsageError("agent store: " + std::to_string(values.size()) + " values for " + std::to_string(keys.size()) +
                     " keys");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    require_short("a key", keys[i], kLongestKey);
    require_short("a value", values[i], kLongestValue);
  }
  const Clock::time_point until = deadline({});
  for (std::size_t at = 0, count = 0; at < keys.size(); at += count) {
    count = fitting(std::span(keys).subspan(at), std::span(values).subspan(at));
    ask({.what = std::int64_t(StoreCall::set), .keys = part(keys, at, count), .values = part(values, at, count)},
        until);
  }
}

std::vector<std::string> AgentStore::multi_get(const Keys& keys, std::optional<Time> timeout) {
  for (const std::string& key : keys) require_short("a key", key, kLongestKey);
  const Clock::time_point until = deadline(timeout);
  Keys values;
  while (values.size() < keys.size()) {
    const std::size_t count = part_from(keys, values.size());
    StoreAnswer answer = ask({.what = std::int64_t(StoreCall::get), .keys = part(keys, values.size(), count)}, until);
    if (answer.values.empty() || answer.values.size() > count)
      throw Error("agent store: " + std::to_string(count) + " keys were answered with " +
                  std::to_string(answer.values.size()) + " values");
    std::ranges::move(answer.values, std::back_inserter(values));
  }
  return values;
}

std::int64_t AgentStore::num_keys() { return ask({.what = std::int64_t(StoreCall::num_keys)}, deadline({})).number; }

// Who comes last opens the round's door and takes away the one before: all who are here have passed it.
void AgentStore::barrier(const std::string& name, int count, std::optional<Time> timeout) {
  if (count < 1) throw UsageError("agent store: a barrier of " + std::to_string(count) + ", not at least 1");
  const std::int64_t place = add(name + "/came", 1);
  const std::int64_t round = (place - 1) / count;
  const auto door = [&](std::int64_t number) { return name + "/round " + std::to_string(number); };
  if (place == (round + 1) * count) {
    if (round > 0) delete_key(door(round - 1));
    set(door(round), "");
  } else {
    wait({door(round)}, timeout);
  }
}

}  // namespace lockstep::rendezvous
