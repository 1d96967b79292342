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
#include "lockstep/rendezvous/error_file.h"

namespace lockstep::comm {
namespace {

std::weak_ptr<Group> the_group;
bool the_agent_reports = false;
std::terminate_handler handler_before = nullptr;

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
      leave_if_follower(*group);
      first = group->abort(what_is_thrown(), code.value_or(kExitFailure));
      if (first) rendezvous::write_error_file(failure_of(*group));
    }
  } catch (...) {  // nothing may come between the exception and its message
  }
  if (code) {
    const bool told_by_the_agent = the_agent_reports && *code != kExitUsage;
    if (first && !told_by_the_agent) base::tell(STDERR_FILENO, "lockstep: error: " + what_is_thrown() + "\n");
    std::_Exit(*code);
  }
  if (handler_before != nullptr && !say_without_call_stack()) handler_before();
  std::abort();
}

}  // namespace

void speak_before_terminating(const std::shared_ptr<Group>& group, bool agent_reports) {
  the_group = group;
  the_agent_reports = agent_reports;
  const std::terminate_handler before = std::set_terminate(on_terminate);
  if (before != on_terminate) handler_before = before;
}

}  // namespace lockstep::comm
