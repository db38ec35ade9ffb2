package launch

import (
	"net"
	"strings"
)

// detectTorchrun recognizes the variables of torchrun, which other launchers set too. If torchrun's
// agent serves a store at MASTER_ADDR:MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), that port is
// taken, and Master stays empty unless SYMGRAD_MASTER names another.
func detectTorchrun(v vars) (Env, bool, error) {
	names := rankVars{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
	if !v.any(names.all()...) {
		return Env{}, false, nil
	}
	e, err := v.ranks(names)
	if err != nil {
		return Env{}, false, err
	}
	e.Launcher = Torchrun
	if err := v.nodes(&e, "GROUP_RANK", "GROUP_WORLD_SIZE"); err != nil {
		return Env{}, false, err
	}
	master, err := v.masterAddress()
	if err != nil {
		return Env{}, false, err
	}
	if v["TORCHELASTIC_USE_AGENT_STORE"] != "True" {
		e.Master = master
	}
	e.Restarts, _ = parseNumber(v["TORCHELASTIC_RESTART_COUNT"])
	// The run id is "none" unless requested; the port distinguishes jobs of one host. A restart is
	// a new job.
	if run := v["TORCHELASTIC_RUN_ID"]; master != "" || (run != "" && run != "none") {
		e.Job = strings.Join([]string{run, master, v["TORCHELASTIC_RESTART_COUNT"]}, "/")
	}
	return e, true, nil
}

// masterAddress returns MASTER_ADDR:MASTER_PORT, or "" if neither is set.
func (v vars) masterAddress() (string, error) {
	const addr, port = "MASTER_ADDR", "MASTER_PORT"
	if !v.any(addr, port) {
		return "", nil
	}
	if !v.any(addr) {
		return "", v.wrong(addr, "the host of rank 0, because %s=%s is set", port, v[port])
	}
	if strings.ContainsAny(v[addr], "@/[]\x00 ") {
		return "", v.wrong(addr, "a host name or address")
	}
	if _, err := v.number(port, "a TCP port", 1, 65535); err != nil {
		return "", err
	}
	return net.JoinHostPort(v[addr], v[port]), nil
}
