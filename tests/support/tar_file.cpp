#include "tests/support/tar_file.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <stdexcept>

namespace lockstep::testing {
namespace {

void check(archive* writer, la_ssize_t result) {
  if (result < 0) throw std::runtime_error(archive_error_string(writer));
}

}  // namespace

std::string tar_gz(const std::vector<TarEntry>& entries) {
  std::string bytes;
  const auto append = [](archive*, void* all, const void* piece, std::size_t count) {
    static_cast<std::string*>(all)->append(static_cast<const char*>(piece), count);
    return la_ssize_t(count);
  };
  const std::unique_ptr<archive, decltype(&archive_write_free)> writer(archive_write_new(), archive_write_free);
  check(writer.get(), archive_write_add_filter_gzip(writer.get()));
  check(writer.get(), archive_write_set_format_pax_restricted(writer.get()));
  check(writer.get(), archive_write_set_bytes_in_last_block(writer.get(), 1));  // no padding
  check(writer.get(), archive_write_open(writer.get(), &bytes, nullptr, append, nullptr));
  for (const TarEntry& each : entries) {
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(), archive_entry_free);
    archive_entry_set_pathname(entry.get(), each.name.c_str());
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_filetype(entry.get(), each.folder ? AE_IFDIR : !each.symlink.empty() ? AE_IFLNK : AE_IFREG);
    archive_entry_set_size(entry.get(), la_int64_t(each.content.size()));
    if (!each.symlink.empty()) archive_entry_set_symlink(entry.get(), each.symlink.c_str());
    if (!each.hardlink.empty()) archive_entry_set_hardlink(entry.get(), each.hardlink.c_str());
    check(writer.get(), archive_write_header(writer.get(), entry.get()));
    check(writer.get(), archive_write_data(writer.get(), each.content.data(), each.content.size()));
  }
  check(writer.get(), archive_write_close(writer.get()));
  return bytes;
}

}  // namespace lockstep::testing
