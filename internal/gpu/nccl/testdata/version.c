// An NCCL that tells its version, as ncclGetVersion of nccl.h does, and can do nothing.
int ncclGetVersion(int *v) { *v = VERSION; return 0; }
