#include "core/discovery/plugin_file.h"

#include "core/base/files.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

#include <elf.h>
#include <algorithm>
#include <cstring>
#include <filesystem>

namespace belay::core {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "Name this machine's e_machine."
#endif

constexpr uint64_t kMaxFile = 1 << 30, kMaxHeaders = 128, kMaxTable = 4 << 20;
constexpr const char* kEntryPrefix = "belay_plugin_v";

std::string machine_name(uint16_t machine) {
  return machine == EM_X86_64    ? "x86_64"
         : machine == EM_AARCH64 ? "aarch64"
         : machine == EM_RISCV   ? "riscv64"
                                 : "machine " + std::to_string(machine);
}

// Reads an ELF file with bounds on everything: its own numbers may lie.
class ElfReader {
 public:
  ElfReader(const OpenFile& file, const std::string& path)
      : file_(file), path_(path), bytes_(uint64_t(file.stat.st_size)) {}

  Status open() {
    if (bytes_ < sizeof header_)
      return bad("it has " + std::to_string(bytes_) + " bytes, too few for an ELF file");
    BELAY_ASSIGN(const std::string head, read_at(file_, 0, sizeof header_, path_));
    std::memcpy(&header_, head.data(), sizeof header_);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return bad("it is no ELF file");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB)
      return bad("it is not a 64-bit little-endian ELF file");
    if (header_.e_machine != kMachine)
      return bad("it is made for " + machine_name(header_.e_machine) + ", this machine is " +
                 machine_name(kMachine));
    if (header_.e_type != ET_DYN)
      return bad("it is no shared library (ELF type " + std::to_string(header_.e_type) + ")");
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0 || header_.e_phnum > kMaxHeaders)
      return bad("its program headers make no sense (" + std::to_string(header_.e_phnum) + " of " +
                 std::to_string(header_.e_phentsize) + " bytes)");
    segments_.resize(header_.e_phnum);
    BELAY_TRY(
        read(header_.e_phoff, segments_.data(), segments_.size() * sizeof(Elf64_Phdr), "program headers"));
    return check_segments();
  }

  Status read_dynamic() {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_DYNAMIC) continue;
      std::vector<Elf64_Dyn> entries(std::min(segment.p_filesz, kMaxTable) / sizeof(Elf64_Dyn));
      BELAY_TRY(
          read(segment.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn), "dynamic section"));
      for (const Elf64_Dyn& entry : entries) {
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_TEXTREL || (entry.d_tag == DT_FLAGS && entry.d_un.d_val & DF_TEXTREL))
          return bad("it has text relocations - compile it with -fPIC");
        if (entry.d_tag == DT_SYMTAB) symbols_ = entry.d_un.d_ptr;
        if (entry.d_tag == DT_STRTAB) strings_ = entry.d_un.d_ptr;
        if (entry.d_tag == DT_STRSZ) string_bytes_ = entry.d_un.d_val;
        if (entry.d_tag == DT_GNU_HASH) gnu_hash_ = entry.d_un.d_ptr;
        if (entry.d_tag == DT_HASH) hash_ = entry.d_un.d_ptr;
      }
      return {};
    }
    return bad("it has no dynamic section");
  }

  Result<std::vector<std::string>> exports() {
    uint64_t first = 0, end = 0;
    BELAY_TRY(symbol_range(first, end));
    std::vector<Elf64_Sym> symbols(end - first);
    if (string_bytes_ > kMaxTable)
      return bad("its string table has " + std::to_string(string_bytes_) + " bytes");
    std::string strings(string_bytes_, '\0');
    BELAY_TRY(read_mapped(symbols_ + first * sizeof(Elf64_Sym), symbols.data(),
                          symbols.size() * sizeof(Elf64_Sym)));
    BELAY_TRY(read_mapped(strings_, strings.data(), strings.size()));
    std::vector<std::string> names;
    for (const Elf64_Sym& symbol : symbols) {
      const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ||
          visibility == STV_HIDDEN || visibility == STV_INTERNAL)
        continue;
      if (symbol.st_name >= strings.size())
        return bad("the name of an exported symbol lies outside of its strings");
      names.emplace_back(strings.c_str() + symbol.st_name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<belay_note> note() {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxTable) continue;
      std::string bytes(segment.p_filesz, '\0');
      BELAY_TRY(read(segment.p_offset, bytes.data(), bytes.size(), "notes"));
      const uint64_t align = segment.p_align == 8 ? 8 : 4;
      const auto up = [&](uint64_t value) { return (value + align - 1) & ~(align - 1); };
      for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes.size();) {
        Elf64_Nhdr head;
        std::memcpy(&head, bytes.data() + at, sizeof head);
        const uint64_t name = at + sizeof head, text = up(name + head.n_namesz),
                       next = up(text + head.n_descsz);
        if (text + head.n_descsz > bytes.size()) break;
        if (head.n_type == BELAY_NOTE_TYPE && head.n_namesz == sizeof BELAY_NOTE_NAME &&
            std::memcmp(bytes.data() + name, BELAY_NOTE_NAME, sizeof BELAY_NOTE_NAME) == 0) {
          belay_note found;
          if (head.n_descsz != sizeof found)
            return bad("its note .note.belay has " + std::to_string(head.n_descsz) + " bytes, want " +
                       std::to_string(sizeof found));
          std::memcpy(&found, bytes.data() + text, sizeof found);
          return found;
        }
        at = next;
      }
    }
    return bad("it has no note .note.belay - a plugin is made with BELAY_DEFINE_PLUGIN");
  }

  Status bad(const std::string& why) const {
    return {Code::kInvalidArgument, "plugin file " + quote(path_) + " refused: " + why};
  }

 private:
  Status check_segments() {
    bool stack = false;
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type == PT_INTERP) return bad("it is a program, not a library");
      if (segment.p_type == PT_GNU_STACK) {
        stack = true;
        if (segment.p_flags & PF_X) return bad("it wants an executable stack - link it with -z noexecstack");
      }
      if (segment.p_filesz > bytes_ || segment.p_offset > bytes_ - segment.p_filesz)
        return bad("a segment ends at byte " + std::to_string(segment.p_offset) + "+" +
                   std::to_string(segment.p_filesz) + " but the file has " + std::to_string(bytes_) +
                   " - it is truncated");
      if (segment.p_type == PT_LOAD && (segment.p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
        return bad("a segment can be written and executed");
      if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz)
        return bad("a segment is larger than its memory");
    }
    return stack ? Status()
                 : bad("it does not say that its stack is not executable - link it with -z noexecstack");
  }

  Status read(uint64_t offset, void* to, uint64_t bytes, const char* what) {
    if (bytes > bytes_ || offset > bytes_ - bytes)
      return bad(std::string("its ") + what + " lie outside of the file");
    if (bytes == 0) return {};
    BELAY_ASSIGN(const std::string data, read_at(file_, offset, bytes, path_));
    std::memcpy(to, data.data(), bytes);
    return {};
  }

  Status read_mapped(uint64_t address, void* to, uint64_t bytes) {
    for (const Elf64_Phdr& segment : segments_)
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && bytes <= segment.p_filesz &&
          address - segment.p_vaddr <= segment.p_filesz - bytes)
        return read(segment.p_offset + (address - segment.p_vaddr), to, bytes, "tables");
    return bad("its symbol tables lie outside of its segments");
  }

  // The symbols that dlsym can find: those of the hash table.
  Status symbol_range(uint64_t& first, uint64_t& end) {
    if (!symbols_ || !strings_) return bad("it has no table of symbols");
    uint32_t head[4];
    if (!gnu_hash_) {
      if (!hash_) return bad("it has no hash table of symbols");
      BELAY_TRY(read_mapped(hash_, head, 8));
      first = 0, end = head[1];
    } else {
      BELAY_TRY(read_mapped(gnu_hash_, head, sizeof head));
      const uint64_t buckets_at = gnu_hash_ + sizeof head + uint64_t(head[2]) * 8,
                     chains_at = buckets_at + head[0] * 4ull;
      if (head[0] > kMaxTable / 4) return bad("its hash table has " + std::to_string(head[0]) + " buckets");
      std::vector<uint32_t> buckets(head[0]);
      BELAY_TRY(read_mapped(buckets_at, buckets.data(), buckets.size() * 4));
      first = head[1];
      end = first;
      for (const uint32_t bucket : buckets) end = std::max<uint64_t>(end, bucket);
      const bool any =
          std::find_if(buckets.begin(), buckets.end(), [](uint32_t b) { return b != 0; }) != buckets.end();
      for (uint32_t chain = any ? 0 : 1; !(chain & 1); ++end) {
        if (end - first > kMaxTable / sizeof(Elf64_Sym)) break;
        BELAY_TRY(read_mapped(chains_at + (end - first) * 4, &chain, 4));
      }
    }
    if (end < first || end - first > kMaxTable / sizeof(Elf64_Sym))
      return bad("it has more than " + std::to_string(kMaxTable / sizeof(Elf64_Sym)) + " exported symbols");
    return {};
  }

  const OpenFile& file_;
  const std::string& path_;
  const uint64_t bytes_;
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_;
  uint64_t symbols_ = 0, strings_ = 0, string_bytes_ = 0, gnu_hash_ = 0, hash_ = 0;
};

std::string padded(const char* text, size_t size) { return std::string(text, strnlen(text, size)); }

Status check_exports(const ElfReader& elf, const std::vector<std::string>& exports, const std::string& file) {
  std::vector<std::string> others, entries;
  for (const std::string& name : exports)
    (name.starts_with(kEntryPrefix) && name.find_first_not_of("0123456789", 14) == std::string::npos ? entries
                                                                                                     : others)
        .push_back(name);
  if (others.size() > 5) others.resize(5), others.push_back("...");
  if (entries.empty())
    return elf.bad("it exports no entry symbol " BELAY_ENTRY_NAME "; it exports " +
                   (others.empty() ? "nothing" : joined(others)));
  if (std::find(entries.begin(), entries.end(), BELAY_ENTRY_NAME) == entries.end())
    return elf.bad("built for ABI " + entries.back().substr(14) + ", this host offers " + host_abi() + " (" +
                   file + ") - install a " +
                   (std::stoul("0" + entries.back().substr(14, 6)) > BELAY_ABI_MAJOR ? "newer" : "older") +
                   " host or a plugin for ABI " + std::to_string(BELAY_ABI_MAJOR));
  if (!others.empty())
    return elf.bad("it exports more than its entry symbol: " + joined(others) +
                   " - link it with a version script (belay_add_plugin does)");
  return {};
}

}  // namespace

std::string PluginFile::id() const { return padded(note.id, sizeof note.id); }
std::string PluginFile::version() const { return padded(note.version, sizeof note.version); }

std::string host_abi() { return std::to_string(BELAY_ABI_MAJOR) + "." + std::to_string(BELAY_ABI_MINOR); }

Result<PluginFile> check_plugin_file(const std::string& path, bool allow_insecure) {
  const std::filesystem::path given(path);
  std::error_code error;
  const auto folder = std::filesystem::canonical(given.parent_path(), error);
  if (error || !given.is_absolute())
    return Status(Code::kNotFound, "plugin file " + quote(path) + " cannot be opened: " +
                                       (error ? error.message() : "want an absolute path"));
  PluginFile found;
  found.path = (folder / given.filename()).string();
  BELAY_ASSIGN(const OpenFile file, open_regular(found.path, kMaxFile, "plugin file", false));
  if (!allow_insecure) BELAY_TRY(check_not_replaceable(file, found.path, "plugin file"));
  found.device = file.stat.st_dev, found.inode = file.stat.st_ino;
  ElfReader elf(file, found.path);
  BELAY_TRY(elf.open());
  BELAY_TRY(elf.read_dynamic());
  BELAY_ASSIGN(found.exports, elf.exports());
  BELAY_TRY(check_exports(elf, found.exports, given.filename().string()));
  BELAY_ASSIGN(found.note, elf.note());
  const std::string abi = std::to_string(found.note.abi_major) + "." + std::to_string(found.note.abi_minor);
  if (found.note.format != 1)
    return elf.bad("its note has format " + std::to_string(found.note.format) + ", this host reads 1");
  if (!valid_id(found.id()))
    return elf.bad("its note has the id " + quote(found.id()) + ", want [a-z][a-z0-9._-]{0,63}");
  if (found.note.abi_major == BELAY_ABI_MAJOR && found.note.layout != BELAY_ABI_LAYOUT)
    return elf.bad("built for layout " + std::to_string(found.note.layout) + " of ABI " + abi +
                   ", this host has layout " + std::to_string(BELAY_ABI_LAYOUT) +
                   " - build it again with the headers of this host");
  if (found.note.sanitizer != BELAY_SANITIZER_NONE && found.note.sanitizer != BELAY_SANITIZER) {
    const char* name =
        found.note.sanitizer == BELAY_SANITIZER_ADDRESS ? "AddressSanitizer" : "ThreadSanitizer";
    return elf.bad(std::string("built with ") + name + ", this host is not - build both alike");
  }
  return found;
}

Status check_digest(const std::string& path, const std::string& sha256, const std::string& said_by) {
  constexpr uint64_t kPiece = 1 << 20;
  BELAY_ASSIGN(const OpenFile file, open_regular(path, kMaxFile, "plugin file", false));
  Sha256Stream stream;
  for (uint64_t at = 0, size = uint64_t(file.stat.st_size); at < size; at += kPiece) {
    BELAY_ASSIGN(const std::string piece, read_at(file, at, std::min(kPiece, size - at), path));
    stream.add(piece);
  }
  const std::string found = hex(stream.finish());
  if (found == sha256) return {};
  return {Code::kInvalidArgument, "plugin file " + quote(path) + " refused: its SHA-256 is " + found +
                                      ", " + said_by + " says " + sha256 +
                                      " - install what that was made for, or correct it"};
}

Status check_same_file(const std::string& path, uint64_t device, uint64_t inode) {
  struct stat stat;
  if (lstat(path.c_str(), &stat) == 0 && stat.st_dev == device && stat.st_ino == inode) return {};
  return {Code::kInternal,
          "plugin file " + quote(path) + " was replaced while it was being loaded - start again"};
}

}  // namespace belay::core
