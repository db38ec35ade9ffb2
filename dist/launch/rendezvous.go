package launch

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// longestSocket bounds the path of a unix socket. sockaddr_un has 108 bytes on Linux, 104 on BSD,
// the last one 0.
const longestSocket = 103

// Config holds the settings of Rendezvous.
type Config struct {
	Timeout time.Duration // until all ranks have arrived; 0 means one minute. A timeout below 20 s may be exceeded by 2 s, to find the missing ranks.
}

// place is the address where the ranks of a job meet.
type place struct {
	address string
	files   []string // unix sockets in private folders, tried before address: no other user can take them
	job     string
	tls     *tls.Config
	beat    time.Duration // between two heartbeats of a rank; 0 means none
	byRank0 bool          // rank 0 serves the store, not the launcher
	remedy  string        // for ranks that may wait at different places, or ""
}

// member is one rank's end of a shared store.
type member interface {
	dist.Store
	io.Closer
	meet(ctx context.Context) error
	missing(ctx context.Context) ([]int, error)
}

// Rendezvous meets the other ranks of the job. The package comment lists the servers of the store.
// A process may close the store and meet again, if all ranks do; the new store is empty.
//
// Collective: all ranks. Returns: when all ranks have arrived. Owns: the caller closes the
// io.Closer, which ends the store, after its last use and once peers need not know whether this
// rank lives. Errors: dist.ErrTimeout, naming the missing ranks; dist.RankError when one died or
// gave up meanwhile; dist.ErrUnsupported if ranks have no safe way to meet; an address in use;
// dist.ErrInvalid without a context; ctx's.
func Rendezvous(ctx context.Context, env Env, cfg Config) (dist.Store, io.Closer, error) {
	if err := env.Validate(); err != nil {
		return nil, nil, err
	}
	timeout := cfg.Timeout
	switch {
	case ctx == nil:
		return nil, nil, fmt.Errorf("rendezvous: no context: %w", dist.ErrInvalid)
	case timeout < 0:
		return nil, nil, fmt.Errorf("rendezvous timeout %v: want 0 or more: %w", timeout, dist.ErrInvalid)
	case timeout == 0:
		timeout = time.Minute
	}
	if env.Size == 1 {
		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("rendezvous of rank 0/1 (%s): %w", env.Launcher, context.Cause(ctx))
		}
		alone := &single{newTable()}
		return alone, alone, nil
	}
	m, err := rendezvous(ctx, env, timeout)
	if err != nil {
		return nil, nil, fmt.Errorf("rendezvous of rank %d/%d (%s): %w", env.Rank, env.Size, env.Launcher, err)
	}
	return m, m, nil
}

func rendezvous(ctx context.Context, env Env, timeout time.Duration) (_ member, err error) {
	p, err := env.place()
	if err != nil {
		return nil, err
	}
	defer func() {
		if p.remedy != "" && errors.Is(err, dist.ErrTimeout) {
			err = fmt.Errorf("%w; %s", err, p.remedy)
		}
	}()
	tooLate := fmt.Errorf("%w after %v", dist.ErrTimeout, timeout)
	// The rest of the time is for finding the missing ranks, and for notifying the others.
	inTime, cancel := context.WithTimeoutCause(ctx, timeout-min(timeout/10, lingerTimeout), tooLate)
	defer cancel()
	m, err := p.join(inTime, env)
	if err != nil {
		return nil, err
	}
	if err = m.meet(inTime); err == nil {
		return m, nil
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerTimeout)
	defer cancel()
	late := errors.Is(err, tooLate)
	if late {
		err = absence(rest, m, env.Size, tooLate)
	}
	h, ok := m.(*host)
	if !ok {
		_ = leave(m, late) // err has the cause
		return nil, err
	}
	reported := err // the others get the same error, or have the death of a rank already
	if !errors.Is(err, dist.ErrTimeout) && !errors.Is(err, dist.ErrAborted) {
		reported = errLeft(0)
	}
	h.server.roster.fail(reported)
	h.server.drain(rest)
	_ = h.server.Close()
	return nil, err
}

// leave closes m, whose rank stops waiting for the others; late if they did not arrive in time.
func leave(m member, late bool) error {
	if c, ok := m.(*Client); ok && late {
		return c.giveUp()
	}
	return m.Close()
}

// absence returns cause with the ranks that are missing.
func absence(ctx context.Context, m member, size int, cause error) error {
	ranks, err := m.missing(ctx)
	switch {
	case err != nil:
		return errors.Join(cause, err)
	case len(ranks) == 0:
		return fmt.Errorf("all %d ranks have come, the last a moment too late: %w", size, cause)
	default:
		return fmt.Errorf("waiting for %s of %d: %w", listRanks(ranks), size, cause)
	}
}

// listRanks returns "rank 3", "ranks 2, 3", and of a long list its start.
func listRanks(ranks []int) string { return listOf("rank", ranks) }

// listOf is listRanks for members with another noun.
func listOf(noun string, ranks []int) string {
	const shown = 16
	var b strings.Builder
	b.WriteString(noun)
	if len(ranks) != 1 {
		b.WriteString("s")
	}
	for i, r := range ranks {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", len(ranks)-shown)
			break
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + strconv.Itoa(r))
	}
	return b.String()
}

// place returns the address where the ranks of e's job meet.
func (e Env) place() (place, error) {
	p := place{job: e.Job, byRank0: true}
	switch {
	case e.StoreFD != 0:
		data, err := readInherited(e.StoreFD, maxCredentials)
		if err == nil {
			p.tls, err = parseCredentials(data)
		}
		if err != nil {
			return place{}, fmt.Errorf("%s=%d: %w; start the rank by the launcher that set it, or unset %s",
				storeFDVar, e.StoreFD, err, storeFDVar)
		}
		p.address, p.byRank0 = e.Master, false
		return p, nil
	case e.OneHost():
		return e.socket()
	case e.secret != nil && e.Master != "":
		return e.secured()
	case e.Master != "" && loopback(e.Master):
		return e.socket()
	case e.Master != "":
		return place{}, fmt.Errorf("%d of %d ranks on this host, to meet at %s: the store would be open to the network, "+
			"without encryption or identity; start the ranks by symgrad run --nnodes, or give all of them a job secret by %s or %s: %w",
			e.LocalSize, e.Size, e.Master, secretFileVar, secretVar, dist.ErrUnsupported)
	default:
		return place{}, fmt.Errorf("%d of %d ranks on this host: %s gives ranks of several hosts no address to meet at; "+
			"%s, or start the ranks by symgrad run --nnodes: %w", e.LocalSize, e.Size, e.Launcher, e.meetingHelp(), dist.ErrUnsupported)
	}
}

// meetingHelp is the remedy for a job on several hosts without a place to meet. srun gives the
// environment of its script to all ranks.
func (e Env) meetingHelp() string {
	if e.Launcher == Slurm || e.Launcher == PMIx {
		return fmt.Sprintf("before srun: export %s=:29500 %s=$(symgrad secret)", masterVar, secretVar)
	}
	return fmt.Sprintf("set %s to host:port of rank 0 and %s to a file with a job secret", masterVar, secretFileVar)
}

// secured returns the store that rank 0 serves at the master's address, with certificates derived
// from the job's secret.
func (e Env) secured() (place, error) {
	p := place{address: e.Master, job: e.Job, byRank0: true, beat: heartbeat}
	if p.job == "" {
		p.job = e.Master
	}
	ca, err := e.secret.authority(ranksPurpose + p.job)
	if err != nil {
		return place{}, err
	}
	if e.Rank == 0 {
		p.tls, err = ca.server()
	} else {
		p.tls, err = ca.client(rankName(e.Rank), storeName)
	}
	return p, err
}

// socket returns the unix sockets of a job on one host, where the kernel identifies the user at the
// other end. A port of the loopback interface, as torchrun names one, is open to every user. The
// name is derived from values that only the ranks of this job share. It is in private folders, if
// any, and abstract. Rank 0 listens on all, so that ranks meet even if their environments name
// different folders.
func (e Env) socket() (place, error) {
	job, remedy := e.Job, ""
	if job == "" {
		job = e.Master
	}
	if job == "" {
		by, err := startedBy(e.from)
		if err != nil {
			return place{}, fmt.Errorf("%s gives no job id: %w; set %s to the same on all ranks", e.Launcher, err, jobVar)
		}
		job = by
		remedy = fmt.Sprintf("%s gives no job id, so that only ranks that one process has started meet (here %s); set %s to the same on all ranks",
			e.Launcher, by, jobVar)
	}
	sum := sha256.Sum256([]byte(e.Launcher + "\x00" + job))
	p := place{address: fmt.Sprintf("@symgrad-%d-%x", os.Getuid(), sum[:16]), job: job, byRank0: true, remedy: remedy}
	for _, dir := range runtimeFolders(e.runtime) {
		if path := filepath.Join(dir, fmt.Sprintf("symgrad-%x", sum[:16])); len(path) <= longestSocket {
			p.files = append(p.files, path)
		}
	}
	return p, nil
}

// loopback reports whether the host of address is the loopback interface, by its name: it is not
// looked up.
func loopback(address string) bool {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(h)
	return h == "localhost" || (ip != nil && ip.IsLoopback())
}

// join serves the store, or dials its server.
func (p place) join(ctx context.Context, e Env) (member, error) {
	if p.byRank0 && e.Rank == 0 {
		return newHost(p, e.Size)
	}
	c, err := Dial(ctx, DialConfig{
		Address: p.address, Job: p.job, Rank: e.Rank, Size: e.Size, TLS: p.tls, ByRank0: p.byRank0, files: p.files,
		beat: p.beat, patient: !e.OneHost() && p.tls != nil,
	})
	if err != nil && p.byRank0 && ctx.Err() != nil {
		return nil, fmt.Errorf("waiting for rank 0 of %d: %w", e.Size, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
