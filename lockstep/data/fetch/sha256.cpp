#include "lockstep/data/fetch/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::data {
namespace {

void check(int result) {
  if (result != 1) throw Error("OpenSSL's SHA-256 fails");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr)); }

Sha256::~Sha256() = default;

void Sha256::add(const void* bytes, std::size_t count) { check(EVP_DigestUpdate(context_.get(), bytes, count)); }

std::string Sha256::digits() {
  std::array<unsigned char, 32> sum{};
  check(EVP_DigestFinal_ex(context_.get(), sum.data(), nullptr));
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : sum) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_of_file(const std::string& path) {
  const base::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_errno("reading '" + base::shown(path) + "'");
  Sha256 sum;
  std::vector<char> block(1 << 20);
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("reading '" + base::shown(path) + "'");
    if (got == 0) return sum.digits();
    sum.add(block.data(), std::size_t(got));
  }
}

}  // namespace lockstep::data
