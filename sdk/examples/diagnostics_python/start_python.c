/* The plugin `diagnostics_python`: the part of it that is no Python. It gives the entry that every plugin
 * has, starts a Python that it finds when it is opened (nothing of Python is linked), and runs diagnostics.py
 * out of its data folder, which fills in `create` and the table of slots with functions of its own, made by
 * ctypes. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <belay/abi/diagnostics.h>
#include <belay/abi/plugin.h>
#include <belay/abi/services.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define ID "diagnostics_python"
#define VERSION "0.1.0"
#define SCRIPT "diagnostics.py"
#define TEXT(literal) \
  { (literal), sizeof(literal) - 1 } /* a belay_str */

static belay_str str(const char* text) { return (belay_str){text, strlen(text)}; }

/* What Python and this file share; `class Bridge` in diagnostics.py has the same fields. */
typedef struct bridge {
  uint64_t bytes; /* of the next, so that both sides can see that they mean the same */
  uint64_t host_bytes, table_bytes, record_bytes;
  const belay_host* host;
  const char* script; /* its text */
  uint64_t script_bytes;
  belay_status (*create)(const belay_value* config, belay_created* out); /* Python sets it, and the next */
  void (*close)(void);
  belay_diagnostics_vt table;
  char error[2048]; /* why it could not be set up; empty: it was */
} bridge;

/* The table lives as long as the library, so this does, too. One host at a time has the plugin open in a
 * process. */
static bridge shared;
static int is_open;

struct belay_ctx {
  char unused;
};
static belay_ctx ctx;

/* ---- Python, as far as it is needed
 * ------------------------------------------------------------------------------ */
static struct {
  int (*is_initialized)(void);
  void (*initialize)(int with_signals);
  void* (*save_thread)(void);
  int (*ensure)(void);
  void (*release)(int);
  int (*run)(const char*);
} python;

static const struct {
  const char* name;
  void** to;
} needed[] = {
    {"Py_IsInitialized", (void**)&python.is_initialized}, {"Py_InitializeEx", (void**)&python.initialize},
    {"PyEval_SaveThread", (void**)&python.save_thread},   {"PyGILState_Ensure", (void**)&python.ensure},
    {"PyGILState_Release", (void**)&python.release},      {"PyRun_SimpleString", (void**)&python.run}};

/* The library by name. Global, because the modules of Python that are libraries themselves find it so. */
static void* open_python(const char* name, char* why, size_t why_bytes) {
  char guess[64];
  void* found = NULL;
  /* A program that has Python in itself, as the interpreter does: there must not be a second one. */
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized")) return dlopen(NULL, RTLD_NOW);
  if (*name) {
    found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!found) snprintf(why, why_bytes, "Python cannot be loaded: %s", dlerror());
    return found;
  }
  for (int minor = 14; minor >= 9 && !found; --minor) {
    snprintf(guess, sizeof guess, "libpython3.%d.so.1.0", minor);
    found = dlopen(guess, RTLD_NOW | RTLD_GLOBAL);
  }
  if (!found)
    snprintf(
        why, why_bytes,
        "There is no libpython3.9.so.1.0 to libpython3.14.so.1.0 where libraries are looked for; install one "
        "(on Debian 12: libpython3.11), or name it under [plugin." ID ".config] library.");
  return found;
}

static int start_python(const char* name, char* why, size_t why_bytes) {
  void* const library = open_python(name, why, why_bytes);
  if (!library) return 0;
  for (size_t i = 0; i < sizeof needed / sizeof *needed; ++i) {
    *needed[i].to = dlsym(library, needed[i].name);
    if (!*needed[i].to) {
      snprintf(why, why_bytes, "The library of Python has no function %s.", needed[i].name);
      return 0;
    }
  }
  if (python.is_initialized()) return 1;
  /* Nobody's environment or folder decides what runs in this process. */
  static const char* const flags[] = {"Py_IsolatedFlag", "Py_IgnoreEnvironmentFlag", "Py_NoSiteFlag",
                                      "Py_NoUserSiteDirectory", "Py_DontWriteBytecodeFlag"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
    int* const flag = dlsym(library, flags[i]);
    if (flag) *flag = 1;
  }
  /* Nor does a python3 in PATH decide where the modules of this library are. */
  void (*set_name)(const wchar_t*) = (void (*)(const wchar_t*))dlsym(library, "Py_SetProgramName");
  if (set_name) set_name(L"/proc/self/no-python");
  /* Python takes the locale of the environment for the whole process, which is not its own here. */
  char* const locale = strdup(setlocale(LC_ALL, NULL));
  python.initialize(0);
  if (locale) setlocale(LC_ALL, locale);
  free(locale);
  python.save_thread(); /* from here on every call takes the lock of Python for itself */
  return 1;
}

/* Runs the script, which fills in the bridge. What goes wrong in it is text in `error`. */
static const char kBegin[] =
    "def belay_begin(address):\n"
    "    import ctypes, traceback\n"
    "    class Head(ctypes.Structure):\n"
    "        _fields_ = [('sizes', ctypes.c_uint64 * 4), ('host', ctypes.c_void_p), ('script', "
    "ctypes.c_void_p),\n"
    "                    ('script_bytes', ctypes.c_uint64)]\n"
    "    head = Head.from_address(address)\n"
    "    try:\n"
    "        names = {'__name__': 'belay_" ID
    "'}\n"
    "        text = ctypes.string_at(head.script, head.script_bytes)\n"
    "        exec(compile(text, '" SCRIPT
    "', 'exec'), names)\n"
    "        names['fill'](address)\n"
    "    except BaseException:\n"
    "        said = traceback.format_exc().encode(errors='replace')[-%zu:]\n"
    "        ctypes.memmove(address + %zu, said + b'\\0', len(said) + 1)\n"
    "belay_begin(%" PRIuPTR
    ")\n"
    "del belay_begin\n";

static void run_script(void) {
  char code[sizeof kBegin + 64];
  snprintf(code, sizeof code, kBegin, sizeof shared.error - 1, offsetof(bridge, error), (uintptr_t)&shared);
  const int lock = python.ensure();
  if (python.run(code) != 0 && !*shared.error)
    strcpy(shared.error, "Python could not begin; it said why on stderr.");
  python.release(lock);
}

/* ---- the plugin
 * -------------------------------------------------------------------------------------------------- */
typedef struct text { /* grows */
  char* bytes;
  uint64_t length;
  int failed;
} text;

static void append(void* user, const void* bytes, uint64_t length) {
  text* const to = user;
  char* const larger = to->failed ? NULL : realloc(to->bytes, to->length + length + 1);
  if (!larger) {
    to->failed = 1;
    return;
  }
  memcpy(larger + to->length, bytes, length);
  to->bytes = larger;
  to->length += length;
  larger[to->length] = 0;
}

static belay_status fail(const belay_host* host, uint32_t code, const char* message) {
  return host->status_make(host, code, str(message));
}

static belay_status open_with(const belay_host* host, const belay_value* config, text* script,
                              text* library) {
  char why[sizeof shared.error] = "";
  const belay_fs_vt* const fs = host->get_service(host, str(BELAY_HOST_FS));
  const belay_value* const name = config ? config->vt->get(config, str("library")) : NULL;
  if (!fs)
    return fail(host, BELAY_UNIMPLEMENTED,
                "The host has no " BELAY_HOST_FS ", where " SCRIPT " would be read.");
  const belay_status read = fs->read(host, BELAY_FS_DATA, str(SCRIPT), (belay_sink){script, append});
  if (read != BELAY_OK) return read;
  if (name) {
    const belay_str given = name->vt->as_string(name);
    append(library, given.ptr, given.len);
  }
  if (script->failed || library->failed) return BELAY_RESOURCE_EXHAUSTED;
  if (!start_python(library->bytes ? library->bytes : "", why, sizeof why))
    return fail(host, BELAY_UNAVAILABLE, why);
  shared = (bridge){.bytes = sizeof shared,
                    .host_bytes = sizeof(belay_host),
                    .table_bytes = sizeof(belay_diagnostics_vt),
                    .record_bytes = sizeof(belay_trace_record),
                    .host = host,
                    .script = script->bytes,
                    .script_bytes = script->length};
  run_script();
  if (!*shared.error) return BELAY_OK;
  snprintf(why, sizeof why, SCRIPT " failed: %.1900s", shared.error);
  return fail(host, BELAY_INTERNAL, why);
}

static belay_status open_plugin(const belay_host* host, const belay_value* config, belay_ctx** out) {
  text script = {0}, library = {0};
  if (__atomic_exchange_n(&is_open, 1, __ATOMIC_ACQ_REL))
    return fail(host, BELAY_ALREADY_EXISTS,
                "'" ID "' is open in another runtime of this process; it has one Python.");
  const belay_status status = open_with(host, config, &script, &library);
  free(script.bytes);
  free(library.bytes);
  if (status != BELAY_OK) __atomic_store_n(&is_open, 0, __ATOMIC_RELEASE);
  *out = &ctx;
  return status;
}

static void close_plugin(belay_ctx* closed) {
  (void)closed;
  shared.close();
  __atomic_store_n(&is_open, 0, __ATOMIC_RELEASE);
}

static belay_status create(belay_ctx* of, const belay_value* config, belay_created* out) {
  (void)of;
  const belay_status status = shared.create(config, out);
  out->table = &shared.table;
  return status;
}

static const belay_component component = {.hdr = {sizeof(belay_component), 0, NULL},
                                          .kind = TEXT(BELAY_DIAGNOSTICS_KIND),
                                          .name = TEXT(ID),
                                          .score = NULL,
                                          .create = create};
static const belay_component* const components[] = {&component};

static const belay_plugin plugin = {.hdr = {sizeof(belay_plugin), 0, NULL},
                                    .id = TEXT(ID),
                                    .version = TEXT(VERSION),
                                    .components = components,
                                    .component_count = 1,
                                    .open = open_plugin,
                                    .start = NULL,
                                    .quiesce = NULL,
                                    .close = close_plugin,
                                    .get_extension = NULL};

static const struct {
  uint32_t name_bytes, desc_bytes, type;
  char name[8];
  belay_note note;
} note __attribute__((used, section(".note.belay"), aligned(4))) = {
    sizeof(BELAY_NOTE_NAME),
    sizeof(belay_note),
    BELAY_NOTE_TYPE,
    BELAY_NOTE_NAME,
    {.format = 1,
     .abi_major = BELAY_ABI_MAJOR,
     .abi_minor = BELAY_ABI_MINOR,
     .sanitizer = BELAY_SANITIZER,
     .cxx11_abi = 2, /* no libstdc++ */
     .layout = BELAY_ABI_LAYOUT,
     .id = ID,
     .version = VERSION,
     .manifest_sha256 = {BELAY_MANIFEST_SHA256_BYTES}}};

BELAY_EXPORT const belay_plugin* BELAY_ENTRY(const belay_host* host, belay_handshake* handshake) {
  (void)host;
  handshake->plugin_minor = BELAY_ABI_MINOR;
  handshake->layout = BELAY_ABI_LAYOUT;
  return &plugin;
}
