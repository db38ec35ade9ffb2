/* A BLAS for the tests of package blas: slow, right unless told otherwise, and with the faces of the real libraries.

   -DINTEGER=long     64-bit integers
   -DWRONG=1..6       see fake.h
   -DONLY_SINGLE      without the routines for double
   -DOPENBLAS='"..."' OpenBLAS with that configuration text; -DOPENMP: an OpenMP build
   -DBLIS=32|64       BLIS with integers of that size; -DPER_THREAD: keeps its number of threads per OS thread
   -DMKL=n            MKL whose interface layer answers n; -DMKL_THREADING=n: whose threading layer answers n if that is negative */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef INTEGER
#define INTEGER int
#endif
#ifndef WRONG
#define WRONG 0
#endif
#ifdef PER_THREAD
#define STORAGE static __thread
#else
#define STORAGE static
#endif

STORAGE int threads = 8; /* what a new thread, or the process, starts with */
static int layer = -1;
static long calls, calls_with_8_threads;

static void enter(void) {
	__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	if (threads == 8)
		__atomic_add_fetch(&calls_with_8_threads, 1, __ATOMIC_SEQ_CST);
}

long fake_calls(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
long fake_calls_with_8_threads(void) { return __atomic_load_n(&calls_with_8_threads, __ATOMIC_SEQ_CST); }
int fake_layer(void) { return layer; }

#define TYPE float
#define NAME(routine) s##routine##_
#include "fake.h"
#undef TYPE
#undef NAME
#ifndef ONLY_SINGLE
#define TYPE double
#define NAME(routine) d##routine##_
#include "fake.h"
#endif

#ifdef OPENBLAS
static int reported = 8;
const char *openblas_get_config(void) { return OPENBLAS; }
const char *openblas_get_corename(void) { return "Abacus"; }
int openblas_get_num_threads(void) { return reported; }
#ifdef OPENMP
int openblas_get_parallel(void) { return 2; }
void omp_set_num_threads(int n) { threads = n; }
void openblas_set_num_threads(int n) { reported = threads = n; }
#else
int openblas_get_parallel(void) { return 1; }
void openblas_set_num_threads(int n) { reported = threads = n; }
#endif
#endif

#ifdef BLIS
const char *bli_info_get_version_str(void) { return "1.2.3"; }
long bli_info_get_blas_int_type_size(void) { return BLIS; }
void bli_thread_set_num_threads(long n) { threads = n; }
long bli_thread_get_num_threads(void) { return threads == 8 ? -1 : threads; }
int bli_arch_query_id(void) { return 7; }
const char *bli_arch_string(int id) { return id == 7 ? "abacus" : "?"; }
#endif

#ifdef MKL
#ifndef MKL_THREADING
#define MKL_THREADING 0
#endif
int MKL_Set_Interface_Layer(int wanted) { return wanted == 0 ? MKL : -1; }
int MKL_Set_Threading_Layer(int wanted) { return layer = MKL_THREADING < 0 ? MKL_THREADING : wanted; }
void MKL_Set_Num_Threads(int n) { threads = n; }
int MKL_Get_Max_Threads(void) { return layer == 1 ? 1 : threads; }
void MKL_Get_Version_String(char *out, int n) {
	strncpy(out, "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture applications", n);
}
#endif
