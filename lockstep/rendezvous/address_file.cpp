#include "lockstep/rendezvous/address_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::string_view kBegin = "lockstep rank 0 ";

UsageError wrong_file(const std::string& path, const std::string& why) {
  return UsageError("init: file://" + path + ": " + why);
}

}  // namespace

AddressFile::AddressFile(std::string path, const std::string& address)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (!fd_) throw wrong_file(path_, std::string("rank 0 cannot write it: ") + std::strerror(errno));
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0)
    throw wrong_file(path_, errno == EWOULDBLOCK ? "another process is rank 0 and meets its ranks there"
                                                 : std::string("rank 0 cannot lock it: ") + std::strerror(errno));
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) throw_errno("init: file://" + path_);
  if (status.st_size != 0)
    throw wrong_file(path_, "is not empty; where an earlier start has left it, remove it, or name another file");
  const std::string line = std::string(kBegin) + address + "\n";
  if (::write(fd_.get(), line.data(), line.size()) != ssize_t(line.size())) {
    const int error = errno;
    unlink(path_.c_str());
    throw wrong_file(path_, std::string("rank 0 cannot write it: ") + std::strerror(error));
  }
}

AddressFile::~AddressFile() { unlink(path_.c_str()); }

std::optional<std::string> AddressFile::read(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::nullopt;
  std::array<char, 512> bytes{};
  const ssize_t got = fd ? ::read(fd.get(), bytes.data(), bytes.size()) : -1;
  if (got < 0) throw wrong_file(path, std::string("cannot be read: ") + std::strerror(errno));
  const std::string text(bytes.data(), std::size_t(got));
  const std::size_t end = text.find('\n');
  if (!text.starts_with(kBegin.substr(0, text.size())) || (end == std::string::npos && text.size() == bytes.size()))
    throw wrong_file(path, "is no file in which ranks meet");
  if (end == std::string::npos) return std::nullopt;
  return text.substr(kBegin.size(), end - kBegin.size());
}

}  // namespace lockstep::rendezvous
