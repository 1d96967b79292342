#include "lockstep/launch/nodes/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string new_secret_text() {
  Secret secret{};
  if (getrandom(secret.data(), secret.size(), 0) != ssize_t(secret.size())) throw_errno("launcher: getrandom");
  std::string text;
  for (const unsigned char byte : secret) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text + "\n";
}

Secret read_secret(const std::string& path) {
  const std::string name = "run: --secret-file " + path;
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw UsageError(name + ": " + std::strerror(errno) + " (lockstep secret new > FILE makes one)");
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) throw UsageError(name + " is not a regular file");
  if (status.st_uid != geteuid()) throw UsageError(name + " belongs to another user");
  if ((status.st_mode & 077) != 0) throw UsageError(name + " can be read by others: chmod 600");
  Secret secret{};
  std::array<char, 2 * secret.size() + 2> text{};
  const ssize_t size = read(fd.get(), text.data(), text.size());
  std::string_view digits(text.data(), std::size_t(size > 0 ? size : 0));
  if (digits.ends_with('\n')) digits.remove_suffix(1);
  const bool right = digits.size() == 2 * secret.size() && digits.find_first_not_of(kDigits) == digits.npos;
  if (!right) throw UsageError(name + " is not a key of " + std::to_string(2 * secret.size()) + " hexadecimal digits");
  for (std::size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<unsigned char>(kDigits.find(digits[2 * i]) << 4 | kDigits.find(digits[2 * i + 1]));
  return secret;
}

}  // namespace lockstep::launch
