// Bad addresses of kernels and copies. The page that was touched is a guard page or freed memory; the signal is turned into a
// failure of the operation, as a GPU's memory unit would. Other signals go to the handler that was there before.
#include <csetjmp>
#include <csignal>
#include <sys/mman.h>

#include "core.h"

namespace emu {

namespace {
thread_local sigjmp_buf *target = nullptr;
thread_local u64 badAddressSeen = 0;
thread_local void *alternateStack = nullptr;
struct sigaction previousSegv, previousBus;
bool installed = false;

void onSignal(int number, siginfo_t *info, void *context) {
  if (target) {
    badAddressSeen = (u64)info->si_addr;
    sigjmp_buf *to = target;
    target = nullptr;
    siglongjmp(*to, 1);
  }
  const struct sigaction &previous = number == SIGBUS ? previousBus : previousSegv;
  if (previous.sa_flags & SA_SIGINFO) previous.sa_sigaction(number, info, context);
  else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) previous.sa_handler(number);
  else {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void install() {
  if (!installed) {
    struct sigaction action = {};
    action.sa_sigaction = onSignal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previousSegv);
    sigaction(SIGBUS, &action, &previousBus);
    installed = true;
  }
  if (!alternateStack) {
    // A fiber that overflows its stack cannot handle the signal on it.
    stack_t old = {};
    sigaltstack(nullptr, &old);
    if (old.ss_flags & SS_DISABLE) {
      const size_t bytes = 64 << 10;
      alternateStack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      stack_t stack = {};
      stack.ss_sp = alternateStack;
      stack.ss_size = bytes;
      sigaltstack(&stack, nullptr);
    } else {
      alternateStack = old.ss_sp;
    }
  }
}
} // namespace

bool guarded(const std::function<void()> &work, u64 &badAddress) {
  install();
  sigjmp_buf buffer;
  sigjmp_buf *const outer = target;
  if (sigsetjmp(buffer, 1) == 0) {
    target = &buffer;
    work();
    target = outer;
    return true;
  }
  target = outer;
  badAddress = badAddressSeen;
  return false;
}

} // namespace emu
