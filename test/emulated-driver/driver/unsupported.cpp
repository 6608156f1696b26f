// Calls that the emulated driver does not implement. They report it, so that a test shows which one is missing.
#include "core.h"

#define EMU_UNSUPPORTED(name)                                                       \
  EMU_API name() {                                                                  \
    fprintf(stderr, "emulated driver: %s is not supported\n", #name);               \
    return emu::NOT_SUPPORTED;                                                      \
  }

EMU_UNSUPPORTED(cuMemcpyBatchAsync_v2)
EMU_UNSUPPORTED(cuStreamWriteValue32_v2)
EMU_UNSUPPORTED(cuStreamWaitValue32_v2)
EMU_UNSUPPORTED(cuMemPoolSetAttribute)
EMU_UNSUPPORTED(cuMemPoolSetAccess)
EMU_UNSUPPORTED(cuGraphAddKernelNode_v2)
EMU_UNSUPPORTED(cuGraphKernelNodeSetParams_v2)
EMU_UNSUPPORTED(cuGraphExecMemcpyNodeSetParams)
EMU_UNSUPPORTED(cuGetProcAddress_v2)
EMU_UNSUPPORTED(cuCtxCreate_v4)
