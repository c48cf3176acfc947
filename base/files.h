// Files and folders: replaced as a whole, on stable storage when a call returns.
// Thread-safe: nothing is kept between calls.
#ifndef BASE_FILES_H_
#define BASE_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

inline constexpr size_t kReadLimit = 64 << 20;

// The whole file; kCorrupt when it is longer than `limit` bytes. Works for files of /proc, and waits for
// nobody.
Result<std::string> ReadFile(const std::string& path, size_t limit = kReadLimit);
// Replaces `path` by a file with `text`: either the old or the new content is there, whatever happens.
Status WriteFileAtomically(const std::string& path, std::string_view text, mode_t mode = 0600);
// All of `bytes` at `offset`.
Status WriteAt(int fd, std::span<const std::byte> bytes, uint64_t offset);
// All of `bytes` from `offset`; kCorrupt when the file ends before.
Status ReadAt(int fd, std::span<std::byte> bytes, uint64_t offset);
Status SyncFd(int fd, const std::string& path);
Status SyncFolder(const std::string& path);
// Creates what is missing of `path`, each folder mode 0700.
Status MakeFolders(const std::string& path);
// Removes a file or a folder with all it holds; no link is followed. OK when nothing is there.
Status RemoveTree(const std::string& path);
// Names in a folder, sorted, without "." and "..". Empty when there is no such folder.
Result<std::vector<std::string>> ListFolder(const std::string& path);
Result<Fd> OpenFile(const std::string& path, int flags, mode_t mode = 0600);
bool Exists(const std::string& path);
// Copies the first `size` bytes of `from` to a new file.
Status CopyFile(const std::string& from, const std::string& to, uint64_t size);
// A name that is one component of a path and nothing else: not empty, at most 255 bytes, no '/', not "." or
// "..", no control characters.
bool IsPlainName(std::string_view name);
// What a symbolic link says; kNotFound when it is none.
Result<std::string> ReadLink(const std::string& path);

}  // namespace stasis

#endif  // BASE_FILES_H_
