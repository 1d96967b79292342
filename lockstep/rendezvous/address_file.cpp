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

// Nothing is followed or waited for.
constexpr int kOpen = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

UsageError wrong_file(const std::string& path, const std::string& why) {
  return UsageError("init: file://" + path + ": " + why);
}

// Whoever may write it sends the ranks where he likes.
struct stat checked(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw_errno("init: file://" + path);
  if (!S_ISREG(status.st_mode)) throw wrong_file(path, "is no file");
  if (status.st_uid != geteuid() && status.st_uid != 0)
    throw wrong_file(path, "belongs to user " + std::to_string(status.st_uid) + ", not to this one");
  return status;
}

}  // namespace

AddressFile::AddressFile(std::string path, const std::string& address)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDWR | O_CREAT | kOpen, 0600)) {
  if (!fd_) throw wrong_file(path_, std::string("rank 0 cannot write it: ") + std::strerror(errno));
  const struct stat status = checked(fd_.get(), path_);
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0)
    throw wrong_file(path_, errno == EWOULDBLOCK ? "another process is rank 0 and meets its ranks there"
                                                 : std::string("rank 0 cannot lock it: ") + std::strerror(errno));
  if (status.st_size != 0)
    throw wrong_file(path_, "is not empty; where an earlier start has left it, remove it, or name another file");
  const std::string line = std::string(kBegin) + address + "\n";
  // Other machines see what has been synchronised.
  if (::write(fd_.get(), line.data(), line.size()) != ssize_t(line.size()) || fsync(fd_.get()) != 0) {
    const int error = errno;
    unlink(path_.c_str());
    throw wrong_file(path_, std::string("rank 0 cannot write it: ") + std::strerror(error));
  }
}

// Its own: somebody may have removed it, and another rank 0 made one since.
AddressFile::~AddressFile() {
  struct stat own {
  }, there{};
  if (fstat(fd_.get(), &own) == 0 && lstat(path_.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
      own.st_ino == there.st_ino)
    unlink(path_.c_str());
}

std::optional<std::string> AddressFile::read(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | kOpen));
  if (!fd && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  if (fd) checked(fd.get(), path);
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
