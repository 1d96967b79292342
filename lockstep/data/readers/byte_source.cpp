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

  void seek(std::uint64_t offset) override {
    if (::lseek(fd_.get(), off_t(offset), SEEK_SET) < 0) {
      throw UsageError("cannot read '" + path_ + "': " + std::strerror(errno));
    }
  }

  std::uint64_t limit() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
  base::UniqueFd fd_;
  std::uint64_t size_ = 0;
};

class MemoryBytes : public ByteSource {
 public:
  MemoryBytes(std::span<const std::uint8_t> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  std::size_t read(void* out, std::size_t bytes) override {
    const std::size_t count = std::min(bytes, bytes_.size() - next_);
    std::copy_n(bytes_.data() + next_, count, static_cast<std::uint8_t*>(out));
    next_ += count;
    return count;
  }

  void seek(std::uint64_t offset) override { next_ = std::size_t(std::min<std::uint64_t>(offset, bytes_.size())); }
  std::uint64_t limit() const override { return bytes_.size(); }
  const std::string& path() const override { return name_; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::string name_;
  std::size_t next_ = 0;
};

// zlib's inflate, not gzread: gzread takes a truncated file for a short one.
class GzipFile : public ByteSource {
 public:
  explicit GzipFile(std::unique_ptr<ByteSource> file) : file_(std::move(file)), packed_(64 << 10) {
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

  void seek(std::uint64_t offset) override {
    file_->seek(0);
    inflateReset(&stream_);
    stream_.avail_in = 0;
    before_ = 0;
    ended_ = false;
    std::vector<char> passed_over(64 << 10);
    while (offset > 0) {
      const std::size_t got =
          read(passed_over.data(), std::size_t(std::min<std::uint64_t>(offset, passed_over.size())));
      if (got == 0) fail("gzip data ends early");
      offset -= got;
    }
  }

  // Deflate never packs better than 1032 to 1.
  std::uint64_t limit() const override { return file_->limit() * 1032; }
  const std::string& path() const override { return file_->path(); }

 private:
  void inflate_some() {
    if (!has_packed()) fail("gzip data ends early");
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      end_member();
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail("damaged gzip data (" + std::string(stream_.msg ? stream_.msg : "unreadable") + ")");
    }
  }

  // Goes to the next member, if there is one.
  void end_member() {
    before_ += stream_.total_in;
    inflateReset(&stream_);
    for (; has_packed() && *stream_.next_in == 0; ++before_) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    constexpr Bytef kFirstOfMember = 0x1f;
    ended_ = !has_packed();
    if (!ended_ && *stream_.next_in != kFirstOfMember) fail("trailing bytes after the gzip data");
  }

  bool has_packed() {
    if (stream_.avail_in > 0) return true;
    stream_.next_in = packed_.data();
    stream_.avail_in = uInt(file_->read(packed_.data(), packed_.size()));
    return stream_.avail_in > 0;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError("'" + path() + "': " + what + " at offset " + std::to_string(before_ + stream_.total_in) + " of " +
                     std::to_string(file_->limit()));
  }

  std::unique_ptr<ByteSource> file_;
  std::vector<Bytef> packed_;
  z_stream stream_{};
  std::uint64_t before_ = 0;  // packed bytes before the member in work
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  auto file = std::make_unique<PlainFile>(path);
  if (path.ends_with(".gz")) return gunzip(std::move(file));
  return file;
}

std::unique_ptr<ByteSource> gunzip(std::unique_ptr<ByteSource> packed) {
  return std::make_unique<GzipFile>(std::move(packed));
}

std::unique_ptr<ByteSource> memory_bytes(std::span<const std::uint8_t> bytes, std::string name) {
  return std::make_unique<MemoryBytes>(bytes, std::move(name));
}

std::vector<std::uint8_t> read_bytes(const std::string& path, std::uint64_t most, const BeginningCheck& check) {
  constexpr std::uint64_t kBeginning = 16;
  PlainFile file(path);
  const std::uint64_t size = file.limit();
  if (size > most) {
    throw UsageError("'" + path + "': " + std::to_string(size) + " bytes, at most " + std::to_string(most) +
                     " are read");
  }
  std::vector<std::uint8_t> bytes(std::min(size, kBeginning));
  const std::size_t begun = file.read(bytes.data(), bytes.size());
  if (check) check(std::span(bytes).first(begun));
  try {
    bytes.resize(size);
  } catch (const std::exception&) {  // bad_alloc, length_error
    throw UsageError("cannot read '" + path + "': " + std::to_string(size) + " bytes, more than memory holds");
  }
  bytes.resize(begun + file.read(bytes.data() + begun, bytes.size() - begun));
  return bytes;
}

}  // namespace lockstep::data
