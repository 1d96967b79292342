#include "lockstep/data/readers/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::data {
namespace {

// Opened without blocking: a pipe in the place of a file is refused, not waited for.
class PlainFile : public ByteSource {
 public:
  explicit PlainFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info {};
    if (!fd_ || ::fstat(fd_.get(), &info) != 0) throw UsageError("cannot open '" + path + "': " + std::strerror(errno));
    if (!S_ISREG(info.st_mode)) throw UsageError("cannot read '" + path + "': not a regular file");
    size_ = std::uint64_t(info.st_size);
  }

  std::size_t read(void* out, std::size_t bytes) override {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::read(fd_.get(), static_cast<char*>(out) + done, bytes - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw UsageError("cannot read '" + path_ + "': " + std::strerror(errno));
      if (got == 0) break;
      done += std::size_t(got);
    }
    return done;
  }

  std::uint64_t limit() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
};

// zlib's inflate, not gzread: gzread takes a truncated file for a short one.
class GzipFile : public ByteSource {
 public:
  explicit GzipFile(const std::string& path) : file_(path), packed_(64 << 10) {
    constexpr int kGzipOnly = 15 + 16;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw Error("zlib cannot start");
  }
  GzipFile(const GzipFile&) = delete;
  ~GzipFile() override { inflateEnd(&stream_); }

  std::size_t read(void* out, std::size_t bytes) override {
    std::size_t done = 0;
    while (done < bytes && !ended_) {
      // zlib counts in 32 bits.
      const auto room = uInt(std::min<std::size_t>(bytes - done, 1u << 30));
      stream_.next_out = static_cast<Bytef*>(out) + done;
      stream_.avail_out = room;
      inflate_some();
      done += room - stream_.avail_out;
    }
    return done;
  }

  // Deflate never packs better than 1032 to 1.
  std::uint64_t limit() const override { return file_.limit() * 1032; }
  const std::string& path() const override { return file_.path(); }

 private:
  void inflate_some() {
    if (stream_.avail_in == 0) {
      stream_.next_in = packed_.data();
      stream_.avail_in = uInt(file_.read(packed_.data(), packed_.size()));
      if (stream_.avail_in == 0) fail("gzip data ends early");
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      ended_ = true;
      if (stream_.total_in != file_.limit()) fail("trailing bytes after the gzip data");
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail("damaged gzip data (" + std::string(stream_.msg ? stream_.msg : "unreadable") + ")");
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError("'" + path() + "': " + what + " at offset " + std::to_string(stream_.total_in) + " of " +
                     std::to_string(file_.limit()));
  }

  PlainFile file_;
  std::vector<Bytef> packed_;
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipFile>(path);
  return std::make_unique<PlainFile>(path);
}

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  PlainFile file(path);
  std::vector<std::uint8_t> bytes(file.limit());
  bytes.resize(file.read(bytes.data(), bytes.size()));
  return bytes;
}

}  // namespace lockstep::data
