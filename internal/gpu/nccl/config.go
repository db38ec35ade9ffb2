package nccl

import "unsafe"

// fits returns an error if NCCL v does not know a setting that c changes: the library would ignore
// it silently.
func (c Config) fits(v Version) error {
	for _, s := range []struct {
		set   bool
		least Version
		name  string
	}{
		{c.MinCTAs > 0, clusterVersion, "the setting MinCTAs"},
		{c.MaxCTAs > 0, clusterVersion, "the setting MaxCTAs"},
		{c.ClusterSize > 0, clusterVersion, "the setting ClusterSize"},
		{c.TrafficClass > 0, trafficVersion, "the setting TrafficClass"},
		{c.Policy == PolicyEfficiency, policyVersion, "the policy efficiency"},
		{c.Policy == PolicyZero, zeroVersion, "the policy zero"},
	} {
		if !s.set {
			continue
		}
		if err := v.need(s.least, s.name); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the ncclConfig_t of c to to. name is the address of the communicator's name, a C
// string that outlives it.
func (c Config) fill(to *config, name uintptr) {
	or := func(v int) int32 {
		if v == 0 {
			return undefInt
		}
		return int32(v)
	}
	most := c.MaxCTAs
	if most == 0 && c.MinCTAs > 0 {
		most = max(64, c.MinCTAs) // NCCL compares the two even if one is undefined; it lowers 64 to its own limit
	}
	*to = config{
		size: uint64(unsafe.Sizeof(config{})), magic: configMagic, version: configVersion,
		blocking:       1, // group calls of others start a thread each (group.cc)
		cgaClusterSize: or(c.ClusterSize), minCTAs: or(c.MinCTAs), maxCTAs: or(most),
		splitShare: undefInt, trafficClass: or(c.TrafficClass), commName: name,
		collnetEnable: undefInt, ctaPolicy: or(int(c.Policy)), shrinkShare: undefInt, nvlsCTAs: undefInt,
		channelsPerNetPeer: undefInt, nvlinkCentricSched: undefInt, graphUsageMode: undefInt, numRmaCtx: undefInt,
		maxP2PPeers: undefInt, graphStreamOrder: undefInt,
	}
}
