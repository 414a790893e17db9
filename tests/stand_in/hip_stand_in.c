/* A stand-in for libamdhip64: HIP's entry points with their real signatures, and no chip behind them. Device memory is
   host memory under addresses of its own, which no host pointer equals and the host cannot follow; kernels are run by
   whoever set a callback (the tests set the emulator). Everything counts what is alive, and any call can be told to
   fail. It is one thread's; nothing here is part of the package. */
#include "hip_abi.h"
#include <elf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONFIGURATION = 9, INVALID_POINTER = 17,
       INVALID_DIRECTION = 21, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY = 209,
       INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701, LAUNCH_FAILURE = 719,
       NOT_SUPPORTED = 801, UNKNOWN = 999 };
enum { INTERRUPTED = -2 }; /* do what was asked, then raise SIGINT, as a user does who presses Ctrl-C meanwhile */

static const struct { int number; const char *name, *text; } ERRORS[] = {
  {SUCCESS, "hipSuccess", "no error (stand-in)"},
  {INVALID_VALUE, "hipErrorInvalidValue", "invalid argument (stand-in)"},
  {OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory (stand-in)"},
  {INVALID_CONFIGURATION, "hipErrorInvalidConfiguration", "invalid configuration argument (stand-in)"},
  {INVALID_POINTER, "hipErrorInvalidDevicePointer", "invalid device pointer (stand-in)"},
  {INVALID_DIRECTION, "hipErrorInvalidMemcpyDirection", "invalid copy direction (stand-in)"},
  {NO_DEVICE, "hipErrorNoDevice", "no device is detected (stand-in)"},
  {INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal (stand-in)"},
  {INVALID_IMAGE, "hipErrorInvalidImage", "invalid kernel image (stand-in)"},
  {NO_BINARY, "hipErrorNoBinaryForGpu", "no kernel image for this device (stand-in)"},
  {INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle (stand-in)"},
  {NOT_FOUND, "hipErrorNotFound", "named symbol not found (stand-in)"},
  {NOT_READY, "hipErrorNotReady", "not ready (stand-in)"},
  {ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "illegal memory access (stand-in)"},
  {OUT_OF_RESOURCES, "hipErrorLaunchOutOfResources", "out of resources for the launch (stand-in)"},
  {LAUNCH_FAILURE, "hipErrorLaunchFailure", "launch failure (stand-in)"},
  {NOT_SUPPORTED, "hipErrorNotSupported", "not supported (stand-in)"},
  {UNKNOWN, "hipErrorUnknown", "unknown error (stand-in)"},
};

#define GUARD 64          /* bytes of canary on either side of an allocation */
#define CANARY 0xC5
#define GARBAGE 0xA5      /* what fresh memory holds */
#define REGION (1ull << 32)
#define FIRST_REGION 0x2A00ull /* device addresses: region << 32, a fresh region each time, as the emulator's own */
#define LAST_REGION 0x6FFFull

typedef struct Thing { struct Thing *next; int kind; } Thing;
enum { MEMORY, MODULE, STREAM, EVENT, KINDS };
typedef struct { Thing thing; uint64_t address; size_t bytes; unsigned char *host; int device; } Memory;
typedef struct { Thing thing; unsigned char *image; size_t bytes; } Module;
typedef struct { Thing thing; } Stream;
typedef struct { Thing thing; int recorded; double milliseconds; } Event;
typedef struct Function { struct Function *next; Module *module; char name[1]; } Function;
typedef struct Failure { struct Failure *next; char call[64]; int status, skip, times; } Failure;

typedef int (*Callback)(const void *image, size_t bytes, const char *kernel, const unsigned *sizes,
                        const void *kernarg, size_t kernarg_bytes, int device);

static Thing *things;
static Function *functions;
static Failure *failures;
static Callback callback;
static int devices = 1, current, pending, lost, last, damage;
static uint64_t region = FIRST_REGION, capacity = 288ull << 30, used;
static char architecture[256] = "gfx950:sramecc+:xnack-";
static unsigned machine = 0x4f; /* EF_AMDGPU_MACH of gfx950 in e_flags' low byte */

static int said(int status) { if (status) last = status; return status; }

static int told_to_fail(const char *call) {
  for (Failure *f = failures; f; f = f->next)
    if (!strcmp(f->call, call) && f->times) {
      if (f->skip) { f->skip--; continue; }
      if (f->times > 0) f->times--;
      return f->status;
    }
  return SUCCESS;
}

/* Every entry point starts here: a lost context answers with its error, an injected failure with its own. */
#define BEGIN int injected = told_to_fail(__func__); \
  if (injected > 0) return said(injected); \
  if (lost) return said(lost)
#define END(status) do { int end = (status); if (injected == INTERRUPTED) raise(SIGINT); return said(end); } while (0)

static void add(Thing *thing, int kind) { thing->kind = kind; thing->next = things; things = thing; }
static int known(const void *handle, int kind) {
  for (Thing *t = things; t; t = t->next) if (t == handle && t->kind == kind) return 1;
  return 0;
}
static int taken(const void *handle, int kind) {
  for (Thing **t = &things; *t; t = &(*t)->next)
    if (*t == handle && (*t)->kind == kind) { *t = (*t)->next; return 1; }
  return 0;
}
static Memory *owner(uint64_t address, size_t bytes) {
  for (Thing *t = things; t; t = t->next) {
    Memory *m = (Memory *)t;
    if (t->kind == MEMORY && m->address <= address && address - m->address <= m->bytes
        && bytes <= m->bytes - (address - m->address)) return m;
  }
  return NULL;
}
/* `count` regions of the device's address space, the first ones behind the last taken that nobody has. */
static uint64_t fresh(uint64_t count) {
  for (int tries = 0; tries < 2; tries++, region = FIRST_REGION)
    for (uint64_t first = region; first + count <= LAST_REGION; first++) {
      Thing *t = things;
      for (; t; t = t->next) {
        uint64_t begin = ((Memory *)t)->address / REGION, bytes = ((Memory *)t)->bytes;
        if (t->kind == MEMORY && begin < first + count && first < begin + (bytes + REGION - 1) / REGION) break;
      }
      if (!t) { region = first + count; return first; }
    }
  return 0;
}
static int intact(const Memory *m) {
  for (int i = 0; i < GUARD; i++)
    if (m->host[i - GUARD] != CANARY || m->host[m->bytes + i] != CANARY) return 0;
  return 1;
}
static void give_back(Memory *m) {
  if (!intact(m)) damage++;
  used -= m->bytes;
  free(m->host - GUARD);
  free(m);
}
/* What earlier launches left behind comes out at the next call that waits. */
static int waited(void) {
  int status = pending;
  pending = 0;
  if (status == ILLEGAL_ADDRESS || status == LAUNCH_FAILURE) lost = status;
  return status;
}

/* ---- the switches, for the tests ---- */

int stand_in_live(int kind) {
  int count = 0;
  for (Thing *t = things; t; t = t->next) count += t->kind == kind;
  return count;
}
int stand_in_damage(void) {
  int count = damage;
  for (Thing *t = things; t; t = t->next) count += t->kind == MEMORY && !intact((Memory *)t);
  return count;
}
int stand_in_allocation(int index, uint64_t *address, uint64_t *host, uint64_t *bytes) {
  for (Thing *t = things; t; t = t->next)
    if (t->kind == MEMORY && index-- == 0) {
      Memory *m = (Memory *)t;
      *address = m->address, *host = (uint64_t)(uintptr_t)m->host, *bytes = m->bytes;
      return 1;
    }
  return 0;
}
void stand_in_callback(Callback chosen) { callback = chosen; }
void stand_in_devices(int count) { devices = count; }
void stand_in_capacity(uint64_t bytes) { capacity = bytes; }
void stand_in_region(uint64_t number) { region = number; }
void stand_in_pending(int status) { pending = status; }
void stand_in_architecture(const char *name, unsigned mach) {
  snprintf(architecture, sizeof architecture, "%s", name);
  machine = mach;
}
void stand_in_fail(const char *call, int status, int skip, int times) {
  Failure *f = calloc(1, sizeof *f);
  snprintf(f->call, sizeof f->call, "%s", call);
  f->status = status, f->skip = skip, f->times = times, f->next = failures, failures = f;
}
void stand_in_reset(void) {
  while (things) {
    Thing *t = things;
    things = t->next;
    if (t->kind == MEMORY) { give_back((Memory *)t); continue; }
    if (t->kind == MODULE) free(((Module *)t)->image);
    free(t);
  }
  while (functions) { Function *f = functions; functions = f->next; free(f); }
  while (failures) { Failure *f = failures; failures = f->next; free(f); }
  callback = NULL, devices = 1, current = pending = lost = last = damage = 0, capacity = 288ull << 30, used = 0;
  stand_in_architecture("gfx950:sramecc+:xnack-", 0x4f);
}

/* ---- HIP's entry points ---- */

const char *hipGetErrorName(int status) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].number == status) return ERRORS[i].name;
  return "hipErrorUnknown";
}
const char *hipGetErrorString(int status) {
  for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) if (ERRORS[i].number == status) return ERRORS[i].text;
  return "unknown error (stand-in)";
}
int hipGetLastError(void) { int status = last; last = 0; return status; }
int hipGetDeviceCount(int *count) {
  BEGIN;
  *count = devices;
  END(devices ? SUCCESS : NO_DEVICE);
}
int hipSetDevice(int device) {
  BEGIN;
  if (device < 0 || device >= devices) return said(INVALID_DEVICE);
  current = device;
  END(SUCCESS);
}
int hipGetDevice(int *device) { BEGIN; *device = current; END(SUCCESS); }
int hipRuntimeGetVersion(int *version) { BEGIN; *version = 70099999; END(SUCCESS); }
int hipDriverGetVersion(int *version) { BEGIN; *version = 70099998; END(SUCCESS); }

#define COMMON_PROPERTIES(p) do { \
  memset(p, 0, sizeof *p); \
  snprintf(p->name, sizeof p->name, "%.6s stand-in (emulated)", architecture); \
  snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", architecture); \
  p->totalGlobalMem = capacity, p->warpSize = 64, p->multiProcessorCount = 256, p->sharedMemPerBlock = 160 << 10; \
  p->maxThreadsPerBlock = 1024, p->pciBusID = 16 + device, p->asicRevision = 7; } while (0)

#ifndef WITHOUT_R0600
int hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *p, int device) {
  BEGIN;
  if (!p || device < 0 || device >= devices) return said(INVALID_DEVICE);
  COMMON_PROPERTIES(p);
  END(SUCCESS);
}
#endif
#ifndef WITHOUT_R0000
int hipGetDeviceProperties(hipDeviceProp_tR0000 *p, int device) {
  BEGIN;
  if (!p || device < 0 || device >= devices) return said(INVALID_DEVICE);
  COMMON_PROPERTIES(p);
  END(SUCCESS);
}
#endif
#ifndef WITHOUT_MEMORY_INFO
int hipMemGetInfo(size_t *unused, size_t *total) {
  BEGIN;
  *unused = capacity - used, *total = capacity;
  END(SUCCESS);
}
#endif
int hipMalloc(void **pointer, size_t bytes) {
  BEGIN;
  if (!pointer) return said(INVALID_VALUE);
  *pointer = NULL;
  if (!bytes) END(SUCCESS);
  if (bytes > capacity - used) return said(OUT_OF_MEMORY);
  unsigned char *host = malloc(bytes + 2 * GUARD);
  Memory *m = calloc(1, sizeof *m);
  if (!host || !m) { free(host); free(m); return said(OUT_OF_MEMORY); }
  memset(host, CANARY, bytes + 2 * GUARD);
  memset(host + GUARD, GARBAGE, bytes);
  uint64_t first = fresh((bytes + REGION - 1) / REGION);
  if (!first) { free(host); free(m); return said(OUT_OF_MEMORY); }
  m->address = first * REGION, m->bytes = bytes, m->host = host + GUARD, m->device = current;
  used += bytes;
  add(&m->thing, MEMORY);
  *pointer = (void *)(uintptr_t)m->address;
  END(SUCCESS);
}
int hipFree(void *pointer) {
  int injected = told_to_fail(__func__); /* a lost context still takes its memory back */
  if (injected > 0) return said(injected);
  if (!pointer) END(SUCCESS);
  Memory *m = owner((uint64_t)(uintptr_t)pointer, 0);
  if (!m || m->address != (uint64_t)(uintptr_t)pointer) return said(INVALID_POINTER);
  taken(m, MEMORY);
  give_back(m);
  END(SUCCESS);
}
static int copied(void *to, const void *from, size_t bytes, int kind) {
  uint64_t target = (uint64_t)(uintptr_t)to, source = (uint64_t)(uintptr_t)from;
  Memory *there = owner(target, bytes), *here = owner(source, bytes);
  if (kind < 1 || kind > 3) return INVALID_DIRECTION; /* to the device, to the host, on the device */
  if (!bytes) return SUCCESS;
  if ((kind != 2) != (there != NULL) || (kind != 1) != (here != NULL)) return INVALID_VALUE;
  if (there) to = there->host + (target - there->address);
  if (here) from = here->host + (source - here->address);
  memmove(to, from, bytes);
  return SUCCESS;
}
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
  BEGIN;
  int status = waited();
  END(status ? status : copied(to, from, bytes, kind));
}
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  BEGIN;
  if (stream && !known(stream, STREAM)) return said(INVALID_HANDLE);
  END(copied(to, from, bytes, kind));
}
int hipMemset(void *to, int value, size_t bytes) {
  BEGIN;
  Memory *m = owner((uint64_t)(uintptr_t)to, bytes);
  if (!m) return said(INVALID_VALUE);
  memset(m->host + ((uint64_t)(uintptr_t)to - m->address), value, bytes);
  END(SUCCESS);
}
int hipStreamCreate(void **stream) {
  BEGIN;
  Stream *s = calloc(1, sizeof *s);
  add(&s->thing, STREAM);
  *stream = s;
  END(SUCCESS);
}
int hipStreamSynchronize(void *stream) {
  BEGIN;
  if (stream && !known(stream, STREAM)) return said(INVALID_HANDLE);
  END(waited());
}
int hipStreamDestroy(void *stream) {
  int injected = told_to_fail(__func__);
  if (injected > 0) return said(injected);
  if (!taken(stream, STREAM)) return said(INVALID_HANDLE);
  free(stream);
  END(SUCCESS);
}
int hipDeviceSynchronize(void) { BEGIN; END(waited()); }
#ifndef WITHOUT_EVENTS
int hipEventCreate(void **event) {
  BEGIN;
  Event *e = calloc(1, sizeof *e);
  add(&e->thing, EVENT);
  *event = e;
  END(SUCCESS);
}
int hipEventRecord(void *event, void *stream) {
  BEGIN;
  if (!known(event, EVENT) || (stream && !known(stream, STREAM))) return said(INVALID_HANDLE);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  ((Event *)event)->recorded = 1, ((Event *)event)->milliseconds = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  END(SUCCESS);
}
int hipEventSynchronize(void *event) {
  BEGIN;
  if (!known(event, EVENT)) return said(INVALID_HANDLE);
  END(waited());
}
int hipEventElapsedTime(float *milliseconds, void *from, void *to) {
  BEGIN;
  if (!known(from, EVENT) || !known(to, EVENT)) return said(INVALID_HANDLE);
  if (!((Event *)from)->recorded || !((Event *)to)->recorded) return said(INVALID_HANDLE);
  *milliseconds = (float)(((Event *)to)->milliseconds - ((Event *)from)->milliseconds);
  END(SUCCESS);
}
int hipEventDestroy(void *event) {
  int injected = told_to_fail(__func__);
  if (injected > 0) return said(injected);
  if (!taken(event, EVENT)) return said(INVALID_HANDLE);
  free(event);
  END(SUCCESS);
}
#endif

/* A code object has no length beside it. HIP's own rule: it ends with whatever begins last, a section or the table of
   their headers; segments do not count. */
static size_t elf_bytes(const unsigned char *image) {
  const Elf64_Ehdr *h = (const void *)image;
  const Elf64_Shdr *s = (const void *)(image + h->e_shoff);
  size_t begin = h->e_shoff, size = (size_t)h->e_shnum * h->e_shentsize;
  for (int i = 0; i < h->e_shnum; i++)
    if (s[i].sh_offset > begin) begin = s[i].sh_offset, size = s[i].sh_type == SHT_NOBITS ? 0 : s[i].sh_size;
  return begin + size;
}
static int has_kernel(const Module *m, const char *name) {
  const Elf64_Ehdr *h = (const void *)m->image;
  const Elf64_Shdr *s = (const void *)(m->image + h->e_shoff);
  size_t length = strlen(name);
  for (int i = 0; i < h->e_shnum; i++) {
    if (s[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *symbols = (const void *)(m->image + s[i].sh_offset);
    const char *names = (const char *)m->image + s[s[i].sh_link].sh_offset;
    for (size_t k = 0; k < s[i].sh_size / sizeof *symbols; k++) {
      const char *found = names + symbols[k].st_name;
      if (!strncmp(found, name, length) && !strcmp(found + length, ".kd")) return 1;
    }
  }
  return 0;
}
int hipModuleLoadData(void **module, const void *image) {
  BEGIN;
  const Elf64_Ehdr *h = image;
  if (!module || !image) return said(INVALID_VALUE);
  if (memcmp(image, ELFMAG, SELFMAG) || h->e_type != ET_DYN || h->e_machine != 224) return said(INVALID_IMAGE);
  if ((h->e_flags & 0xff) != machine) return said(NO_BINARY);
  Module *m = calloc(1, sizeof *m);
  m->bytes = elf_bytes(image);
  m->image = malloc(m->bytes);
  memcpy(m->image, image, m->bytes);
  add(&m->thing, MODULE);
  *module = m;
  END(SUCCESS);
}
int hipModuleUnload(void *module) {
  int injected = told_to_fail(__func__);
  if (injected > 0) return said(injected);
  if (!taken(module, MODULE)) return said(INVALID_HANDLE);
  for (Function **f = &functions; *f;) {
    Function *one = *f;
    if (one->module != module) { f = &one->next; continue; }
    *f = one->next;
    free(one);
  }
  free(((Module *)module)->image);
  free(module);
  END(SUCCESS);
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN;
  if (!known(module, MODULE)) return said(INVALID_HANDLE);
  if (!has_kernel(module, name)) return said(NOT_FOUND);
  Function *f = calloc(1, sizeof *f + strlen(name));
  f->module = module, f->next = functions, functions = f;
  strcpy(f->name, name);
  *function = f;
  END(SUCCESS);
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **parameters, void **extra) {
  BEGIN;
  const Function *f = functions;
  while (f && f != function) f = f->next;
  if (!f || (stream && !known(stream, STREAM))) return said(INVALID_HANDLE);
  if (parameters || !extra) return said(NOT_SUPPORTED); /* HIP has both ways; only the finished block is used here */
  if ((uintptr_t)extra[0] != 1 || (uintptr_t)extra[2] != 2 || (uintptr_t)extra[4] != 3) return said(INVALID_VALUE);
  const unsigned sizes[7] = {gx, gy, gz, bx, by, bz, lds};
  for (int i = 0; i < 6; i++) if (!sizes[i]) return said(INVALID_VALUE);
  if ((uint64_t)bx * by * bz > 1024) return said(INVALID_CONFIGURATION);
  if (pending) END(SUCCESS); /* what is queued behind a failed launch does not run */
  int status = callback ? callback(f->module->image, f->module->bytes, f->name, sizes, extra[1],
                                   *(const size_t *)extra[3], current) : LAUNCH_FAILURE;
  if (status == INVALID_VALUE || status == OUT_OF_RESOURCES) return said(status); /* the launch itself was wrong; what the kernel did shows later */
  if (status == INTERRUPTED) raise(SIGINT); else pending = status;
  END(SUCCESS);
}
