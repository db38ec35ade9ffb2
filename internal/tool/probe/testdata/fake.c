// Stand-ins for the libraries that the tests ask, one for each -D. They answer as the real ones document it.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef DRIVER
// Three GPUs: 0 and 1 reach each other, with atomics; 2 is reached by 0 alone. FAKE_CUDA is how it fails.
static int fails(const char *how) { const char *e = getenv("FAKE_CUDA"); return e && !strcmp(e, how); }
int cuInit(unsigned flags) { return flags ? 1 : fails("init") ? 999 : 0; }
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = fails("none") ? 0 : 3; return 0; }
int cuDeviceGet(int *d, int i) { *d = 100 + i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Fake H%d", d); return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = (size_t)140 << 30; return d < 100; }
int cuDeviceGetAttribute(int *v, int attr, int d) {
	switch (attr) {
	case 16: *v = 132; return 0;
	case 20: *v = d == 102 ? 3 : 0; return 0;
	case 33: *v = 0x1b + d - 100; return 0;
	case 34: *v = 0; return 0;
	case 50: *v = 1; return 0;
	case 75: *v = 9; return 0;
	case 76: *v = 0; return 0;
	case 102: *v = 1; return 0;
	case 103: *v = 1; return d == 102; // an older driver does not know it
	}
	return 1;
}
int cuDeviceCanAccessPeer(int *y, int d, int p) { *y = (d != 102 && p != 102) || (d == 100 && p == 102); return d == p; }
int cuDeviceGetP2PAttribute(int *v, int attr, int d, int p) { *v = attr == 3 && d < 102 && p < 102; return 0; }
int cuDeviceGetUuid(char *id, int d) { for (int i = 0; i < 16; i++) id[i] = i * 16 + d - 100; return 0; }
int cuGetErrorName(int code, const char **s) { *s = code == 999 ? "CUDA_ERROR_UNKNOWN" : 0; return code != 999; }
int cuGetErrorString(int code, const char **s) { *s = "unknown error"; return 0; }
#endif

#ifdef NCCL
int ncclGetVersion(int *v) { *v = NCCL; return 0; }
#if NCCL >= 22703
int ncclCommWindowRegister(void) { return 0; }
#endif
#endif

#ifdef NVSHMEM
void nvshmemx_vendor_get_version_info(int *a, int *b, int *c) { *a = 3; *b = 4; *c = 5; }
void nvshmem_info_get_version(int *a, int *b) { *a = 1; *b = 3; }
int nvshmemx_hostlib_init_attr(void) { return 0; }
#endif

#ifdef CUBLAS
int cublasGetProperty(int which, int *v) { int parts[] = {13, 1, 2}; *v = parts[which]; return 0; }
#endif

#ifdef CUDART
int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
#endif

#ifdef CUDNN
size_t cudnnGetVersion(void) { return 91002; }
size_t cudnnGetCudartVersion(void) { return 13000; }
#endif

#ifdef NVJITLINK
int nvJitLinkVersion(unsigned *a, unsigned *b) { *a = 13; *b = 0; return 0; }
#endif

#ifdef NVRTC
int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }
int nvrtcGetNumSupportedArchs(int *n) { *n = 3; return 0; }
int nvrtcGetSupportedArchs(int *v) { v[0] = 75; v[1] = 90; v[2] = 121; return 0; }
int nvrtcCreateProgram(void **p, const char *src, const char *name, int n, void *a, void *b) { *p = strdup(src); return !strstr(src, "__global__") || n; }
int nvrtcCompileProgram(void *p, int n, void *o) { return NVRTC; }
int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = sizeof "nvrtc: error: failed to open libnvrtc-builtins.so.13.0\n"; return 0; }
int nvrtcGetProgramLog(void *p, char *s) { strcpy(s, "nvrtc: error: failed to open libnvrtc-builtins.so.13.0\n"); return 0; }
int nvrtcDestroyProgram(void **p) { free(*p); *p = 0; return 0; }
const char *nvrtcGetErrorString(int code) { return code == 7 ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE" : "NVRTC_ERROR"; }
#endif

#ifdef UCX
const char *ucp_get_version_string(void) { return "1.13.1"; }
#endif

#ifdef MPI
int MPI_Get_version(int *a, int *b) { *a = 3; *b = 1; return 0; }
int MPI_Get_library_version(char *s, int *n) { strcpy(s, MPI); *n = strlen(s); return 0; }
#ifdef OPENMPI
char ompi_mpi_comm_world[8];
#endif
#ifdef ABI
int MPI_Abi_get_version(int *a, int *b) { *a = 1; *b = 0; return 0; }
#endif
#endif

#ifdef SHMEM
void shmem_info_get_version(int *a, int *b) { *a = 1; *b = 4; }
void shmem_info_get_name(char *s) { strcpy(s, "Fake SHMEM"); }
#endif

#ifdef CRASH
__attribute__((constructor)) static void crash(void) { fprintf(stderr, "about to crash\n"); signal(SIGSEGV, SIG_DFL); raise(SIGSEGV); }
#endif

#ifdef EXIT
__attribute__((constructor)) static void leave(void) { fprintf(stderr, "\nFATAL ERROR: a part is missing\n"); exit(3); }
#endif

#ifdef HANG
__attribute__((constructor)) static void hang(void) { for (;;) pause(); }
#endif

#ifdef THIEF
static void handler(int s) { _exit(9); }
__attribute__((constructor)) static void take(void) { signal(SIGSEGV, handler); signal(SIGFPE, handler); }
#endif

#ifdef NOISY
__attribute__((constructor)) static void shout(void) { const char s[] = "symgrad-answer: {not this}\nhalf a line"; if (write(1, s, sizeof s - 1) < 0) _exit(1); }
#endif
