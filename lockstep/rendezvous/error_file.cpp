#include "lockstep/rendezvous/error_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/base/file_size_signal.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(std::size_t(written));
  }
  return true;
}

}  // namespace

std::string error_file_text(const Failure& failure, std::int64_t seconds_since_epoch) {
  const nlohmann::ordered_json extra = {{"timestamp", std::to_string(seconds_since_epoch)},
                                        {"py_callstack", failure.cause},
                                        {"rank", failure.rank},
                                        {"step", failure.step},
                                        {"phase", failure.phase}};
  const nlohmann::ordered_json root = {{"message", {{"message", failure.cause}, {"extraInfo", extra}}}};
  return root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_error_file(const Failure& failure) noexcept try {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const std::string text = error_file_text(failure, std::time(nullptr));
  // Not blocking: a pipe without a reader is refused instead of waited for.
  const base::UniqueFd file(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                                 S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH));
  if (!file) return;
  const base::WithoutFileSizeSignal quiet;
  if (write_all(file.get(), text)) return;
  if (ftruncate(file.get(), 0) == 0) unlink(path);
} catch (const std::exception&) {
  return;  // out of memory: the failure is told on stderr all the same
}

}  // namespace lockstep::rendezvous
