#include "lockstep/comm/last_words.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/base/outlet.h"
#include "lockstep/comm/call_log.h"
#include "lockstep/rendezvous/error_file.h"

namespace lockstep::comm {
namespace {

std::weak_ptr<Group> the_group;
int the_rank = -1;
int the_size = 1;
bool the_agent_reports = false;
std::terminate_handler handler_before = nullptr;

template <class E>
bool is_thrown() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

// The first line: libtorch's messages go on with a stack of their own.
std::string what_is_thrown() {
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) return "std::terminate was called without an exception";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// What is known of this rank's failure, which was the first.
Failure failure_of(Group& group) {
  const base::Node* const node = group.shared_node();
  if (node == nullptr) return {.rank = group.rank(), .cause = what_is_thrown()};
  return base::read_failure(node->member.page(), node->member.generation());
}

// With the rank, where there are several: what is wrong may be so on one alone.
std::string line_of_ours() {
  const std::string text = what_is_thrown();
  return the_size == 1 || is_thrown<GroupAborted>() ? text : Failure{.rank = the_rank, .cause = text}.to_string();
}

// Tells the group why it ends. Returns whether this rank is the one to say so to the user: it was the first to fail,
// maybe in the very call that threw, which has told the group already.
bool tell(Group& group, int code) {
  const bool now = group.abort(what_is_thrown(), code);
  const base::Node* const node = group.shared_node();
  return now || node == nullptr || node->member.first_to_fail();
}

// Whoever only followed another rank's failure ends without a word: an error is told once.
void leave_if_follower(Group& group) {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const GroupAborted& aborted) {
    const base::Node* const node = group.shared_node();
    if (node != nullptr && !node->member.first_to_fail()) std::_Exit(aborted.failure().exit_code);
  } catch (...) {
  }
}

// The handler that was there before prints libtorch's errors with pages of addresses. Returns whether there was such
// an error to say.
bool say_without_call_stack() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    const std::string message = base::message_of(error);
    if (message == error.what()) return false;
    std::fprintf(stderr, "terminate called after throwing an error of libtorch: %s\n", message.c_str());
    return true;
  } catch (...) {
  }
  return false;
}

// Nothing for errors that are not ours.
std::optional<int> exit_code_of_ours() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return exit_code(error);
  } catch (...) {
  }
  return std::nullopt;
}

[[noreturn]] void on_terminate() {
  const std::optional<int> code = exit_code_of_ours();
  bool first = true;
  try {
    if (const std::shared_ptr<Group> group = the_group.lock()) {
      if (CallLog* const log = group->call_log()) log->write_if_over();
      leave_if_follower(*group);
      first = tell(*group, code.value_or(kExitFailure));
      if (first) rendezvous::write_error_file(failure_of(*group));
    } else if (the_rank >= 0 && !is_thrown<GroupAborted>()) {  // it has left the group, whose page says nothing of it
      rendezvous::write_error_file({.rank = the_rank, .cause = what_is_thrown()});
    }
  } catch (...) {  // nothing may come between the exception and its message
  }
  if (code) {
    const bool told_by_the_agent = the_agent_reports && *code != kExitUsage;
    if (first && !told_by_the_agent) base::tell(STDERR_FILENO, "lockstep: error: " + line_of_ours() + "\n");
    std::_Exit(*code);
  }
  if (handler_before != nullptr && !say_without_call_stack()) handler_before();
  std::abort();
}

}  // namespace

void speak_before_terminating(const std::shared_ptr<Group>& group, bool agent_reports) {
  the_group = group;
  the_rank = group != nullptr ? group->rank() : -1;
  the_size = group != nullptr ? group->size() : 1;
  the_agent_reports = agent_reports;
  const std::terminate_handler before = std::set_terminate(on_terminate);
  if (before != on_terminate) handler_before = before;
}

}  // namespace lockstep::comm
