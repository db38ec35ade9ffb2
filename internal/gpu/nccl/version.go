package nccl

import (
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

// Version is a version of NCCL as ncclGetVersion returns it: 22803 is 2.28.3, and before 2.9, 2804
// is 2.8.4.
type Version int32

// Versions that this package compares with.
const (
	leastVersion    Version = 21403 // ncclConfig_t, ncclCommFinalize
	clusterVersion  Version = 21701 // cgaClusterSize, minCTAs, maxCTAs
	trafficVersion  Version = 22602 // trafficClass
	windowVersion   Version = 22703 // windows
	policyVersion   Version = 22703 // CTAPolicy
	zeroVersion     Version = 22803 // CTAPolicy zero
	vidmemVersion   Version = 22803 // windows are the device structure of windowVidmem
	peerVersion     Version = 22902 // ncclGetPeerDevicePointer
	alignVersion    Version = 23003 // symmetric kernels are right for elements off multiples of 8 B
	anySizesVersion Version = 23007 // allocations of one window may differ in size
)

// Parts returns the major, minor and patch number.
func (v Version) Parts() (major, minor, patch int) {
	n := int(v)
	if n < 10000 {
		return n / 1000, n / 100 % 10, n % 100
	}
	return n / 10000, n / 100 % 100, n % 100
}

// String returns "2.28.3".
func (v Version) String() string {
	major, minor, patch := v.Parts()
	return fmt.Sprintf("%d.%d.%d", major, minor, patch)
}

// need returns an ErrUnsupported with both versions if v is older than least.
func (v Version) need(least Version, what string) error {
	if v >= least {
		return nil
	}
	return fmt.Errorf("nccl: %s needs NCCL %v or later, this is %v: %w", what, least, v, dist.ErrUnsupported)
}
