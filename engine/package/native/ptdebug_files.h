// What ptdebug_package.cpp reads packages with: the members of their zip, checked, and shared libraries from memory.
#ifndef PTDEBUG_FILES_H
#define PTDEBUG_FILES_H
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {
[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

// A zip whose members are stored as they are.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    const int file = open(path.c_str(), O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about)) fail("can't read " + path + ": " + std::strerror(errno));
    size_ = about.st_size;
    void* at = size_ ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
    const std::string why = at == MAP_FAILED ? std::strerror(errno) : "";
    close(file);
    if (at == MAP_FAILED) fail("can't read " + path + ": " + why);  // of a folder, say
    if (!at) damaged("it is empty");
    bytes_ = static_cast<const unsigned char*>(at);
    try {
      directory();
    } catch (...) {
      munmap(at, size_);
      throw;
    }
  }
  ~File() { munmap(const_cast<unsigned char*>(bytes_), size_); }
  File(const File&) = delete;

  bool has(const std::string& name) const { return members_.count(name); }

  std::pair<const char*, size_t> member(const std::string& name) const {
    const auto found = members_.find(name);
    if (found == members_.end()) damaged("it has no " + name);
    return found->second;
  }

  [[noreturn]] void damaged(const std::string& why) const {
    fail(path_ + " is no package of ptdebug, or is damaged: " + why);
  }

 private:
  uint64_t number(size_t at, int width) const {
    within(at, width);
    uint64_t value = 0;
    for (int k = width - 1; k >= 0; k--) value = value << 8 | bytes_[at + k];
    return value;
  }

  void within(uint64_t at, uint64_t length) const {
    if (at > size_ || length > size_ - at) damaged("it ends too early");
  }

  void directory() {
    size_t end = size_ < 22 ? 0 : size_ - 22;
    const size_t first = end < 0xffff ? 0 : end - 0xffff;  // what follows it is a comment of 16 bits' length
    while (end > first && number(end, 4) != 0x06054b50) end--;
    if (number(end, 4) != 0x06054b50) damaged("it has no directory");
    uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
    if ((count == 0xffff || at == 0xffffffff) && end >= 20 && number(end - 20, 4) == 0x07064b50) {  // a large file
      const uint64_t large = number(end - 12, 8);
      count = number(large + 32, 8), at = number(large + 48, 8);
    }
    for (; count > 0; count--) {
      if (number(at, 4) != 0x02014b50) damaged("its directory is not one");
      const uint64_t crc = number(at + 16, 4), name_length = number(at + 28, 2), extra = number(at + 30, 2);
      uint64_t size = number(at + 24, 4), local = number(at + 42, 4);
      if (number(at + 10, 2) != 0) damaged("a member is compressed");
      within(at, 46 + name_length);
      wide(at + 46 + name_length, extra, size, local);
      const std::string name(reinterpret_cast<const char*>(bytes_ + at + 46), name_length);
      const uint64_t begin = local + 30 + number(local + 26, 2) + number(local + 28, 2);
      if (begin > size_ || size > size_ - begin) damaged(name + " in it ends too early");
      if (checksum(bytes_ + begin, size) != crc) damaged(name + " in it is not what was written");
      members_[name] = {reinterpret_cast<const char*>(bytes_ + begin), size};
      at += 46 + name_length + extra + number(at + 32, 2);
    }
  }

  // The 64-bit values of a member, which stand in its extra field where 32 bits do not suffice.
  void wide(uint64_t at, uint64_t length, uint64_t& size, uint64_t& local) const {
    const bool wide_size = size == 0xffffffff, wide_local = local == 0xffffffff;
    for (const uint64_t end = at + length; at + 4 <= end; at += 4 + number(at + 2, 2)) {
      if (number(at, 2) != 1) continue;
      uint64_t place = at + 4;
      if (wide_size) size = number(place, 8), place += 16;  // the compressed size follows, which is the same
      if (wide_local) local = number(place, 8);
    }
  }

  static uint32_t checksum(const unsigned char* bytes, size_t size) {  // CRC-32, eight bytes a step
    static const auto table = [] {
      std::vector<uint32_t> made(8 * 256);
      for (uint32_t n = 0; n < 256; n++) {
        uint32_t value = n;
        for (int k = 0; k < 8; k++) value = value & 1 ? 0xedb88320u ^ (value >> 1) : value >> 1;
        made[n] = value;
      }
      for (int n = 256; n < 8 * 256; n++) made[n] = made[n - 256] >> 8 ^ made[made[n - 256] & 255];
      return made;
    }();
    uint32_t value = 0xffffffffu;
    for (; size >= 8; size -= 8, bytes += 8) {
      uint64_t word;
      std::memcpy(&word, bytes, 8);
      word ^= value;
      value = 0;
      for (int k = 0; k < 8; k++) value ^= table[(7 - k) * 256 + (word >> 8 * k & 255)];
    }
    for (; size > 0; size--, bytes++) value = table[(value ^ *bytes) & 255] ^ value >> 8;
    return ~value;
  }

  std::string path_;
  const unsigned char* bytes_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, std::pair<const char*, size_t>> members_;
};

// A shared library. Its file stays open as long as it is loaded: the next would have the same name in /proc, by which
// dlopen takes two for one.
class Library {
 public:
  Library(const std::string& name, std::pair<const char*, size_t> code) {
    file_ = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (file_ < 0) fail("no memory for " + name);
    bool written = true;
    for (size_t done = 0; done < code.second && written;) {
      const ssize_t n = write(file_, code.first + done, code.second - done);
      written = n > 0;
      done += written ? n : 0;
    }
    const std::string path = "/proc/self/fd/" + std::to_string(file_);
    handle_ = written ? dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL) : nullptr;
    if (handle_) return;
    const char* why = written ? dlerror() : nullptr;
    const std::string message = "can't load " + name + ": " + (why ? why : "no memory");
    close(file_);
    fail(message);
  }
  ~Library() {
    dlclose(handle_);
    close(file_);
  }
  Library(const Library&) = delete;
  void* find(const std::string& name) const { return dlsym(handle_, name.c_str()); }

 private:
  int file_;
  void* handle_;
};
}  // namespace
#endif
