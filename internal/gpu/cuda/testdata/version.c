// A driver that tells its version, as cuDriverGetVersion of cuda.h does, and can do nothing.
int cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
int cuGetErrorName(int code, const char **s) { *s = 0; return code; }
int cuGetErrorString(int code, const char **s) { *s = 0; return code; }
