// Runs the threads of a kernel. Each block's threads are run one after the other, in an order that the seed gives, on one fiber; only a thread that
// waits (at a barrier, in a shuffle) keeps its fiber, and the next thread gets another. So a kernel that never waits is a plain loop.
#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <sys/mman.h>

#include "fibers.h"

// Saves the registers that a function must preserve, and changes stacks.
extern "C" void emuSwitch(void **saveTo, void *resume);
asm(R"(
.text
.hidden emuSwitch
.globl emuSwitch
.type emuSwitch, @function
emuSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emuSwitch, .-emuSwitch
)");

namespace emu {

namespace {
const size_t stackBytes = 128 << 10;
const int threadsMax = 1024;

struct Fiber {
  unsigned char *stack = nullptr;
  void *resume = nullptr;
};

enum State { Ready, AtWarp, AtBlock, Done };

struct Thread {
  State state = Ready;
  Fiber *fiber = nullptr;
  u32 mask = 0;
  u64 value = 0;
  const char *what = nullptr;
  const u64 *received = nullptr;
};

struct Block {
  const KernelRun *run = nullptr;
  int count = 0;
  int started = 0;
  int self = 0;
  std::string failure;
  Thread threads[threadsMax];
  int order[threadsMax];
  EmuIndex index[threadsMax];
  // One table of values for each group of lanes that exchanges, at the group's lowest lane.
  u64 tables[threadsMax][32];
};

Block *block = nullptr;
std::vector<Fiber *> freeFibers, allFibers;
void *scheduler = nullptr;
unsigned char *dynamicShared = nullptr, *dynamicSharedMap = nullptr;
const size_t dynamicSharedMax = 232448;
u64 randomState = 88172645463325252ull;

u32 nextRandom() {
  randomState ^= randomState << 13;
  randomState ^= randomState >> 7;
  randomState ^= randomState << 17;
  return (u32)(randomState >> 32);
}

void toScheduler(Fiber *fiber) { emuSwitch(&fiber->resume, scheduler); }

Fiber *runningFiber = nullptr;

void fiberMain() {
  for (;;) {
    while (block->started < block->count) {
      const int self = block->order[block->started++];
      block->self = self;
      block->threads[self].fiber = runningFiber;
      *block->run->module->threadIndex = block->index[self];
      block->run->kernel->run(block->run->parameters);
      block->threads[block->self].state = Done;
    }
    freeFibers.push_back(runningFiber);
    toScheduler(runningFiber);
  }
}

void fiberStart() {
  fiberMain();
  __builtin_trap();
}

// (Re)starts a fiber from the beginning of its stack.
void reset(Fiber *fiber) {
  void **top = (void **)(fiber->stack + stackBytes);
  // The address that `ret` takes; above it a slot that keeps the stack aligned as at a call, below it six registers.
  *--top = nullptr;
  *--top = (void *)fiberStart;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  fiber->resume = top;
}

Fiber *takeFiber() {
  if (freeFibers.empty()) {
    auto *fiber = new Fiber;
    // A guard page below: a stack overflow is a bad address and does not overwrite other data.
    unsigned char *map = (unsigned char *)mmap(nullptr, stackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(map, page, PROT_NONE);
    fiber->stack = map + page;
    reset(fiber);
    allFibers.push_back(fiber);
    freeFibers.push_back(fiber);
  }
  Fiber *fiber = freeFibers.back();
  freeFibers.pop_back();
  return fiber;
}

void resume(Fiber *fiber) {
  runningFiber = fiber;
  emuSwitch(&scheduler, fiber->resume);
}

void yield() {
  Thread &thread = block->threads[block->self];
  const int self = block->self;
  toScheduler(thread.fiber);
  block->self = self;
}

void blockBarrier() {
  block->threads[block->self].state = AtBlock;
  yield();
}

void fail(const char *message) {
  if (block->failure.empty()) block->failure = message;
  // Never comes back: the fibers are started anew.
  yield();
}

const u64 *warpExchange(u32 mask, u64 value, const char *what) {
  Thread &thread = block->threads[block->self];
  if (!(mask >> (block->self & 31) & 1)) {
    fail((std::string(what) + " was called by lane " + std::to_string(block->self & 31) + ", which its mask leaves out").c_str());
  }
  thread.state = AtWarp;
  thread.mask = mask;
  thread.value = value;
  thread.what = what;
  yield();
  return block->threads[block->self].received;
}

unsigned char *giveDynamicShared() { return dynamicShared; }
int giveLane() { return block->self & 31; }

const EmuRuntime runtime = {blockBarrier, warpExchange, giveDynamicShared, giveLane, fail};

// Releases each group of a warp once all its lanes have arrived. Lanes outside the block do not count.
bool releaseWarp(int first) {
  bool released = false;
  const int lanes = std::min(32, block->count - first);
  const u32 existing = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  for (int lane = 0; lane < lanes; lane++) {
    Thread &leader = block->threads[first + lane];
    if (leader.state != AtWarp) continue;
    const u32 group = leader.mask & existing;
    // The lowest lane of the group speaks for it.
    if (__builtin_ctz(group) != lane) continue;
    bool complete = true;
    for (int other = lane; other < lanes && complete; other++)
      if (group >> other & 1)
        complete = block->threads[first + other].state == AtWarp && block->threads[first + other].mask == leader.mask;
    if (!complete) continue;
    u64 *table = block->tables[first + lane];
    // The value of a lane that takes no part is undefined: NaN makes its use visible.
    memset(table, 0xFF, sizeof block->tables[0]);
    for (int other = lane; other < lanes; other++) {
      if (!(group >> other & 1)) continue;
      Thread &thread = block->threads[first + other];
      if (strcmp(thread.what, leader.what) != 0)
        block->failure = std::string("lanes of a warp meet in ") + leader.what + " and in " + thread.what;
      table[other] = thread.value;
      thread.received = table;
      thread.state = Ready;
    }
    released = true;
  }
  return released;
}

std::string divergence() {
  std::string text = "its threads diverge: ";
  std::map<std::string, int> places;
  for (int i = 0; i < block->count; i++) {
    const Thread &thread = block->threads[i];
    places[thread.state == Done ? "have ended" : thread.state == AtBlock ? "wait in __syncthreads" : std::string("wait in ") + thread.what]++;
  }
  const char *separator = "";
  for (const auto &place : places) {
    text += separator + std::to_string(place.second) + " " + place.first;
    separator = ", ";
  }
  return text;
}

void runBlock() {
  block->started = 0;
  for (int i = 0; i < block->count; i++) block->threads[i].state = Ready;
  for (int i = block->count - 1; i > 0; i--) std::swap(block->order[i], block->order[nextRandom() % (i + 1)]);
  // First runs until every thread has ended or waits.
  bool waits = false;
  while (block->started < block->count) {
    resume(takeFiber());
    if (!block->failure.empty()) return;
  }
  for (int i = 0; i < block->count && !waits; i++) waits = block->threads[i].state != Done;
  while (waits) {
    bool released = false;
    for (int first = 0; first < block->count; first += 32) released = releaseWarp(first) || released;
    if (!block->failure.empty()) return;
    if (!released) {
      // Threads that have ended do not count at a barrier.
      bool all = true;
      for (int i = 0; i < block->count && all; i++) all = block->threads[i].state != AtWarp;
      if (!all) {
        block->failure = divergence();
        return;
      }
      for (int i = 0; i < block->count; i++)
        if (block->threads[i].state == AtBlock) block->threads[i].state = Ready;
    }
    const int start = (int)(nextRandom() % block->count);
    const bool backwards = nextRandom() & 1;
    waits = false;
    for (int n = 0; n < block->count; n++) {
      int at = start + n;
      if (at >= block->count) at -= block->count;
      Thread &thread = block->threads[block->order[backwards ? block->count - 1 - at : at]];
      if (thread.state == Ready) {
        block->self = (int)(&thread - block->threads);
        *block->run->module->threadIndex = block->index[block->self];
        resume(thread.fiber);
        if (!block->failure.empty()) return;
      }
    }
    for (int i = 0; i < block->count && !waits; i++) waits = block->threads[i].state != Done;
  }
}

void resetFibers() {
  freeFibers = allFibers;
  for (Fiber *fiber : allFibers) reset(fiber);
}
} // namespace

const EmuRuntime *kernelRuntime() { return &runtime; }

std::string runGrid(const KernelRun &run) {
  if (!block) block = new Block;
  const Launch &launch = *run.launch;
  const EmuModule &module = *run.module;
  randomState = machine.random() | 1;
  if (!dynamicSharedMap) {
    dynamicSharedMap = (unsigned char *)mmap(nullptr, dynamicSharedMax + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(dynamicSharedMap + (dynamicSharedMax + page) / page * page, page, PROT_NONE);
  }
  // Ends at the guard page, so that the first byte too many is noticed (up to the alignment of 16).
  const size_t sharedBytes = (launch.sharedBytes + 15) / 16 * 16;
  dynamicShared = dynamicSharedMap + (dynamicSharedMax + page) / page * page - sharedBytes;
  block->run = &run;
  block->count = (int)(launch.block[0] * launch.block[1] * launch.block[2]);
  block->failure.clear();
  int at = 0;
  for (u32 z = 0; z < launch.block[2]; z++)
    for (u32 y = 0; y < launch.block[1]; y++)
      for (u32 x = 0; x < launch.block[0]; x++) {
        block->order[at] = at;
        block->index[at++] = {x, y, z};
      }
  *module.runtime = &runtime;
  *module.blockExtent = {launch.block[0], launch.block[1], launch.block[2]};
  *module.gridExtent = {launch.grid[0], launch.grid[1], launch.grid[2]};
  const u64 blocks = (u64)launch.grid[0] * launch.grid[1] * launch.grid[2];
  // Blocks in any order: from anywhere on, forwards or backwards.
  const u64 first = machine.random() % blocks;
  const bool backwards = machine.random() & 1;
  u64 badAddress = 0;
  const size_t staticShared = module.sharedEnd - module.sharedBegin;
  const bool intact = guarded(
      [&] {
        for (u64 n = 0; n < blocks && block->failure.empty(); n++) {
          u64 number = first + n;
          if (number >= blocks) number -= blocks;
          if (backwards) number = blocks - 1 - number;
          *module.blockIndex = {(u32)(number % launch.grid[0]), (u32)(number / launch.grid[0] % launch.grid[1]),
                                (u32)(number / launch.grid[0] / launch.grid[1])};
          if (staticShared) memset(module.sharedBegin, 0xFF, staticShared);
          if (sharedBytes) memset(dynamicShared, 0xFF, sharedBytes);
          runBlock();
        }
      },
      badAddress);
  if (!intact) {
    const EmuIndex thread = *module.threadIndex, blockAt = *module.blockIndex;
    char text[160];
    snprintf(text, sizeof text, "thread (%u,%u,%u) of block (%u,%u,%u) touched ", thread.x, thread.y, thread.z, blockAt.x,
             blockAt.y, blockAt.z);
    resetFibers();
    return text + describe(badAddress);
  }
  if (!block->failure.empty()) resetFibers();
  return block->failure;
}

} // namespace emu
