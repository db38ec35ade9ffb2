// An NVSHMEM that tells its version, as nvshmemx_vendor_get_version_info of nvshmemx_api.h does, and can do nothing.
void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) { *major = MAJOR; *minor = MINOR; *patch = PATCH; }
void nvshmem_info_get_version(int *major, int *minor) { *major = 1; *minor = 3; }
int nvshmemx_init_status(void) { return 0; }
