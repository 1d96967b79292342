#include "lockstep/launch/report/error_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::optional<WorkerError> parse_worker_error(std::string_view json) {
  const nlohmann::json root = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("message")) return std::nullopt;
  const nlohmann::json& message = root["message"];
  if (message.is_string()) return WorkerError{.message = message.get<std::string>(), .traceback = {}};
  if (!message.is_object()) return std::nullopt;
  WorkerError error{.message = text_at(message, "message"), .traceback = {}};
  if (const auto extra = message.find("extraInfo"); extra != message.end() && extra->is_object())
    error.traceback = text_at(*extra, "py_callstack");
  return error;
}

ErrorFile::ErrorFile() : memory_(memfd_create("lockstep-error", MFD_CLOEXEC)) {
  if (!memory_) throw_errno("launcher: memfd_create");
  path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory_.get());
}

std::optional<double> ErrorFile::written() const {
  struct stat status {};
  const bool known = memory_ ? fstat(memory_.get(), &status) == 0 : stat(path_.c_str(), &status) == 0;
  if (!known || status.st_size == 0) return std::nullopt;
  return double(status.st_mtim.tv_sec) + double(status.st_mtim.tv_nsec) * 1e-9;
}

std::optional<WorkerError> ErrorFile::read() const {
  if (!written()) return std::nullopt;  // the ordinary case, on the way to a restart: not worth a megabyte of zeros
  std::string text(std::size_t(1) << 20, '\0');
  std::ifstream file(path_, std::ios::binary);
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(file.gcount()));
  return parse_worker_error(text);
}

}  // namespace lockstep::launch
