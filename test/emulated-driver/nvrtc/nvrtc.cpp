// The emulated NVRTC: g++ compiles kernel/cuda_emu.h and the source into a shared library, which is the "cubin". Sources that were
// compiled before come from the folder `kernels` beside this library.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "../driver/image.h"

#define EMU_API extern "C" __attribute__((visibility("default"))) int
extern char **environ;

namespace {

enum Result { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };

struct Program {
  std::string source, name, log, image;
  bool ptx = false, compiled = false;
};
std::mutex lock;
std::set<Program *> programs;
const int architectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

std::string ownFolder() {
  Dl_info info;
  dladdr((void *)&ownFolder, &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

bool exists(const std::string &path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

// Two different 64-bit FNV-1a sums: the name of what was compiled.
std::string hashOf(const std::string &text) {
  uint64_t one = 14695981039346656037ull, two = 0x9E3779B97F4A7C15ull;
  for (const unsigned char c : text) {
    one = (one ^ c) * 1099511628211ull;
    two = (two ^ c) * 1099511628211ull;
    two ^= two >> 29;
  }
  char name[40];
  snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)one, (unsigned long long)two);
  return name;
}

int run(const std::vector<std::string> &words, const std::string &logPath) {
  std::vector<char *> arguments;
  for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, logPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The compiler's own flags; the precompiled header was made with the same.
const std::vector<std::string> flags = {EMU_KERNEL_FLAGS};

struct Options {
  int architecture = 75;
  bool ptx = true;
  std::vector<std::string> definitions;
};

bool parse(int count, const char *const *options, Options &result, std::string &log) {
  static const std::regex architecture("(--gpu-architecture|-arch)=(sm|compute)_([0-9]+)a?");
  static const std::regex ignored(
      "(--std|-std)=c\\+\\+(11|14|17|20)|-default-device|--device-as-default-execution-space|--use_fast_math|-use_fast_math|"
      "(--fmad|-fmad|--ftz|-ftz|--prec-div|-prec-div|--prec-sqrt|-prec-sqrt)=(true|false)|--generate-line-info|-lineinfo|"
      "--extra-device-vectorization|-extra-device-vectorization|--restrict|-restrict|--disable-warnings|-w|(--maxrregcount|-maxrregcount)=[0-9]+|"
      "(--diag-suppress|-diag-suppress)=[0-9,]+|(--include-path=|-I).+|(--split-compile|-split-compile)=[0-9]+|(--device-int128|-device-int128)");
  for (int i = 0; i < count; i++) {
    std::string option = options[i];
    std::smatch found;
    if (std::regex_match(option, found, architecture)) {
      result.architecture = std::stoi(found[3]);
      result.ptx = found[2] == "compute";
      bool known = false;
      for (const int one : architectures) known = known || one == result.architecture;
      if (!known) {
        log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        return false;
      }
    } else if (option.rfind("-D", 0) == 0) {
      result.definitions.push_back(option);
    } else if (option.rfind("--define-macro=", 0) == 0) {
      result.definitions.push_back("-D" + option.substr(15));
    } else if (!std::regex_match(option, ignored)) {
      log = "nvrtc: error: unrecognized option " + option + " found\n";
      return false;
    }
  }
  return true;
}

int compile(Program &program, const Options &options) {
  const std::string folder = ownFolder(), kernels = folder + "/kernels";
  mkdir(kernels.c_str(), 0755);
  std::string key = program.source + '\0' + program.name;
  for (const std::string &definition : options.definitions) key += '\0' + definition;
  const std::string target = kernels + "/" + hashOf(key) + ".so";
  if (!exists(target)) {
    static int counter = 0;
    const std::string own = kernels + "/" + std::to_string(getpid()) + "-" + std::to_string(counter++) + "-" + hashOf(key).substr(0, 8);
    const std::string source = own + ".cpp", library = own + ".so", log = own + ".log", plain = own + ".plain.cpp", expanded = own + ".ii";
    struct Cleanup {
      std::vector<std::string> paths;
      ~Cleanup() {
        for (const std::string &path : paths) unlink(path.c_str());
      }
    } cleanup{{source, library, log, plain, expanded}};
    const std::string line = "#line 1 \"" + program.name + "\"\n";
    // First only the preprocessor, without any header folder, as NVRTC has none: its output shows all kernels, also those of macros.
    std::ofstream(plain) << line << program.source;
    std::vector<std::string> words = {"g++", "-x", "c++", "-std=c++17", "-E", "-P", "-nostdinc", "-nostdinc++", "-DEMU=1", "-D__global__=__emu_global__"};
    words.insert(words.end(), options.definitions.begin(), options.definitions.end());
    words.insert(words.end(), {plain, "-o", expanded});
    int status = run(words, log);
    if (status == 0) {
      static const std::regex kernel("__emu_global__\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?void\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?([A-Za-z_]\\w*)\\s*\\(");
      const std::string text = readFile(expanded);
      std::set<std::string> names;
      for (auto at = std::sregex_iterator(text.begin(), text.end(), kernel); at != std::sregex_iterator(); at++) names.insert((*at)[1]);
      std::ofstream file(source);
      file << "#include \"cuda_emu.h\"\nEMU_MODULE_BEGIN\n" << line << program.source << "\n#line 1 \"registrations\"\n";
      for (const std::string &name : names) file << "EMU_KERNEL(" << name << ")\n";
      file << "EMU_MODULE_END\n";
      file.close();
      words = {"g++"};
      words.insert(words.end(), flags.begin(), flags.end());
      words.insert(words.end(), options.definitions.begin(), options.definitions.end());
      // Links only what kernels call: without the C++ library and start files g++ is faster.
      words.insert(words.end(), {"-I" + folder, "-shared", source, "-o", library, "-nostdlib", "-lm", "-lc", "-lgcc"});
      status = run(words, log);
    }
    if (status != 0) {
      program.log = readFile(log);
      if (program.log.empty()) program.log = "g++ could not be run\n";
      return COMPILATION;
    }
    if (rename(library.c_str(), target.c_str()) != 0) return INTERNAL;
  }
  const std::string library = readFile(target);
  EmuImageHeader header;
  memcpy(header.magic, emuImageMagic, sizeof header.magic);
  header.architecture = (uint32_t)options.architecture;
  header.ptx = options.ptx;
  header.bytes = library.size();
  program.image = std::string((const char *)&header, sizeof header) + library;
  program.ptx = options.ptx;
  program.compiled = true;
  return SUCCESS;
}

} // namespace

EMU_API nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return SUCCESS;
}

EMU_API nvrtcGetNumSupportedArchs(int *count) {
  *count = sizeof architectures / sizeof *architectures;
  return SUCCESS;
}

EMU_API nvrtcGetSupportedArchs(int *list) {
  memcpy(list, architectures, sizeof architectures);
  return SUCCESS;
}

EMU_API nvrtcCreateProgram(Program **result, const char *source, const char *name, int headerCount, const char *const *, const char *const *) {
  if (!result || !source || headerCount != 0) return INVALID_INPUT;
  auto *program = new Program;
  program->source = source;
  program->name = name && *name ? name : "default_program";
  std::lock_guard<std::mutex> hold(lock);
  programs.insert(program);
  *result = program;
  return SUCCESS;
}

EMU_API nvrtcDestroyProgram(Program **program) {
  std::lock_guard<std::mutex> hold(lock);
  if (!program || !programs.erase(*program)) return INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return SUCCESS;
}

EMU_API nvrtcCompileProgram(Program *program, int count, const char *const *options) {
  {
    std::lock_guard<std::mutex> hold(lock);
    if (!programs.count(program)) return INVALID_PROGRAM;
  }
  Options parsed;
  program->log.clear();
  program->compiled = false;
  if (!parse(count, options, parsed, program->log)) return INVALID_OPTION;
  return compile(*program, parsed);
}

EMU_API nvrtcGetProgramLogSize(Program *program, size_t *bytes) {
  *bytes = program->log.size() + 1;
  return SUCCESS;
}

EMU_API nvrtcGetProgramLog(Program *program, char *log) {
  memcpy(log, program->log.c_str(), program->log.size() + 1);
  return SUCCESS;
}

// PTX where the architecture is virtual (compute_90), a cubin where it is real (sm_90).
EMU_API nvrtcGetPTXSize(Program *program, size_t *bytes) {
  if (!program->compiled) return INVALID_PROGRAM;
  *bytes = program->ptx ? program->image.size() : 0;
  return SUCCESS;
}

EMU_API nvrtcGetPTX(Program *program, char *bytes) {
  if (!program->compiled || !program->ptx) return INVALID_PROGRAM;
  memcpy(bytes, program->image.data(), program->image.size());
  return SUCCESS;
}

EMU_API nvrtcGetCUBINSize(Program *program, size_t *bytes) {
  if (!program->compiled) return INVALID_PROGRAM;
  *bytes = program->ptx ? 0 : program->image.size();
  return SUCCESS;
}

EMU_API nvrtcGetCUBIN(Program *program, char *bytes) {
  if (!program->compiled || program->ptx) return INVALID_PROGRAM;
  memcpy(bytes, program->image.data(), program->image.size());
  return SUCCESS;
}

extern "C" __attribute__((visibility("default")))
const char *nvrtcGetErrorString(int result) {
  switch (result) {
  case SUCCESS:
    return "NVRTC_SUCCESS";
  case OUT_OF_MEMORY:
    return "NVRTC_ERROR_OUT_OF_MEMORY";
  case INVALID_INPUT:
    return "NVRTC_ERROR_INVALID_INPUT";
  case INVALID_PROGRAM:
    return "NVRTC_ERROR_INVALID_PROGRAM";
  case INVALID_OPTION:
    return "NVRTC_ERROR_INVALID_OPTION";
  case COMPILATION:
    return "NVRTC_ERROR_COMPILATION";
  default:
    return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}
