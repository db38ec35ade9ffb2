package launch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/symgrad/symgrad/dist"
)

// joinNodes meets the launchers of the other nodes, and agrees with them on the ranks of each.
//
// Owns: the caller closes the launchers. Errors: dist.ErrTimeout, naming the missing nodes; a wrong
// secret; a node that is taken.
func joinNodes(ctx context.Context, cfg SpawnConfig, r *restarts) (*launchers, error) {
	tooLate := fmt.Errorf("%w after %v", dist.ErrTimeout, cfg.Wait)
	inTime, cancel := context.WithTimeoutCause(ctx, cfg.Wait, tooLate)
	defer cancel()
	l := &launchers{node: cfg.Node, restarts: r}
	var err error
	if cfg.Node == 0 {
		err = l.serve(inTime, cfg)
	} else {
		err = l.dial(inTime, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("launch: node %d of %d: %w", cfg.Node, cfg.Nodes, asNodeError(err))
	}
	l.start()
	return l, nil
}

// nodeError is the loss of a launcher before the start of ranks.
type nodeError struct {
	node int
	how  string
}

// Error returns "node 1 is gone: connection closed".
func (e *nodeError) Error() string { return fmt.Sprintf("node %d is gone: %s", e.node, e.how) }

// Unwrap returns dist.ErrAborted.
func (e *nodeError) Unwrap() error { return dist.ErrAborted }

// asNodeError replaces a RankError of the launchers' roster, whose ranks are nodes.
func asNodeError(err error) error {
	var lost *dist.RankError
	if errors.As(err, &lost) {
		return &nodeError{lost.Rank, lost.How}
	}
	return err
}

func nodeKey(node int) string { return "node/" + strconv.Itoa(node) }

const layoutKey = "layout"

// describe returns this node as the value of its key.
func (l *launchers) describe(cfg SpawnConfig) ([]byte, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return json.Marshal(nodeInfo{Ranks: cfg.N, Host: name, Generation: l.restarts.generation})
}

// serve starts the store on node 0 and waits for the other launchers.
func (l *launchers) serve(ctx context.Context, cfg SpawnConfig) (err error) {
	l.layout.Job = "symgrad-" + hex.EncodeToString(randomBytes(8))
	config, err := l.serverConfig(cfg.Secret)
	if err != nil {
		return err
	}
	desk := &nodeDesk{size: cfg.Nodes, roster: newRoster(cfg.Nodes, true), patience: patienceOfBeat(heartbeat)}
	desk.roster.noun = "node"
	desk.lead = newLead(desk.roster, cfg, l.restarts)
	m, err := desk.roster.join(0)
	if err != nil {
		return err
	}
	s, err := Listen(ServerConfig{Address: cfg.listenAddress(), Job: l.layout.Job, TLS: config, Watched: true, nodes: desk})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: if this job's launcher with --node-rank 0 runs there, this one needs another number, else --store another port: %w",
			cfg.listenAddress(), syscall.EADDRINUSE)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerTimeout)
		defer cancel()
		reported := err
		if !errors.Is(err, dist.ErrTimeout) && !errors.Is(err, dist.ErrAborted) {
			reported = errLeft(0)
		}
		desk.roster.fail(reported)
		s.drain(rest)
		_ = s.Close() // err has the cause
	}()
	if err = checkReachable(cfg.listenAddress(), s.Address()); err != nil {
		return err
	}
	if err := m.wait(ctx); err != nil {
		if errors.Is(err, dist.ErrTimeout) {
			err = fmt.Errorf("waiting for %s of %d: %w", listOf("node", desk.roster.missing(m)), cfg.Nodes, err)
		}
		return err
	}
	if err := l.settle(ctx, cfg, m); err != nil {
		return err
	}
	s.open(l.layout.size())
	desk.lead.begin(s, m, l.layout)
	l.store, l.master = m, dialable(s.Address())
	l.send = func(r report) error { return desk.lead.take(0, r) }
	l.leave = func() {
		rest, cancel := context.WithTimeout(context.Background(), lingerTimeout)
		defer cancel()
		desk.lead.end()
		s.drain(rest)
		_ = s.Close() // all launchers have the verdict, or are lost
	}
	return l.publish(ctx, m)
}

// checkReachable rejects a name that is a loopback address on this host, as Debian gives a host's
// own name: other hosts would wait in vain.
func checkReachable(asked, actual string) error {
	host, port, err := net.SplitHostPort(asked)
	if err != nil || net.ParseIP(host) != nil || loopback(asked) || !loopback(actual) {
		return nil // it is an address, or reachable
	}
	own, _, _ := net.SplitHostPort(actual) // of a listener, it is valid
	return fmt.Errorf("store %s: the name is %s on this host, which other hosts cannot reach; use an address of this host, or --master 0.0.0.0:%s here: %w",
		asked, own, port, dist.ErrInvalid)
}

// serverConfig returns the configuration of the store for ranks and for launchers.
func (l *launchers) serverConfig(secret Secret) (*tls.Config, error) {
	forLaunchers, err := secret.authority(launchersPurpose)
	if err != nil {
		return nil, err
	}
	if l.authority, err = secret.authority(ranksPurpose + l.layout.Job); err != nil {
		return nil, err
	}
	config, err := l.authority.server()
	if err != nil {
		return nil, err
	}
	cert, err := forLaunchers.issue(launchersStore, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}
	config.Certificates = append(config.Certificates, cert) // chosen by the client's ServerName
	config.ClientCAs.AddCert(forLaunchers.cert)
	return config, nil
}

// settle reads the nodes' descriptions into the layout.
func (l *launchers) settle(ctx context.Context, cfg SpawnConfig, m *meeting) error {
	own, err := l.describe(cfg)
	if err != nil {
		return err
	}
	if err := m.Set(ctx, nodeKey(0), own); err != nil {
		return err
	}
	for node := range cfg.Nodes {
		data, err := m.Get(ctx, nodeKey(node))
		var info nodeInfo
		if err == nil {
			err = json.Unmarshal(data, &info)
		}
		if err == nil && (info.Ranks < 1 || info.Ranks > MostSpawned) {
			err = fmt.Errorf("%d ranks: want 1 to %d: %w", info.Ranks, MostSpawned, dist.ErrInvalid)
		}
		if err != nil {
			return fmt.Errorf("description of node %d: %w", node, err)
		}
		l.layout.Nodes = append(l.layout.Nodes, info)
		l.layout.Generation = max(l.layout.Generation, info.Generation)
	}
	if n := l.layout.size(); n > maxRanks {
		return fmt.Errorf("%d ranks on %d nodes: want at most %d: %w", n, cfg.Nodes, maxRanks, dist.ErrInvalid)
	}
	l.restarts.generation = l.layout.Generation
	return nil
}

func (l *launchers) publish(ctx context.Context, m *meeting) error {
	data, err := json.Marshal(l.layout)
	if err != nil {
		return err
	}
	return m.Set(ctx, layoutKey, data)
}

// dial joins the launchers' store at node 0 and waits for the layout.
func (l *launchers) dial(ctx context.Context, cfg SpawnConfig) error {
	forLaunchers, err := cfg.Secret.authority(launchersPurpose)
	if err != nil {
		return err
	}
	config, err := forLaunchers.client(nodeName(cfg.Node), launchersStore)
	if err != nil {
		return err
	}
	c, err := dialAsNode(ctx, cfg, config)
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("the launcher of node 0 at %s has another job secret: %w", cfg.Store, err)
	case errors.Is(err, dist.ErrTimeout):
		return fmt.Errorf("waiting for node 0 of %d: %w", cfg.Nodes, err)
	case err != nil:
		return err
	}
	if err := l.meet(ctx, cfg, c); err != nil {
		_ = c.giveUp() // err has the cause
		return err
	}
	l.store, l.master = c, cfg.Store
	l.send = func(r report) error {
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = c.call(context.Background(), frame{kind: opReport, value: data}, "report")
		return err
	}
	l.leave = func() { _ = c.Close() } // it is lost, or has the verdict
	return nil
}

// dialAsNode joins the launchers' store. If the job has restarts, another launcher with this node
// may be one that is lost, which node 0 notices soon.
func dialAsNode(ctx context.Context, cfg SpawnConfig, config *tls.Config) (c *Client, err error) {
	late := time.NewTimer(2*patienceOfBeat(heartbeat) + cfg.Grace + verdictSlack)
	defer late.Stop()
	for {
		c, err = Dial(ctx, DialConfig{
			Address: cfg.Store, Job: launchersJob, Rank: cfg.Node, Size: cfg.Nodes, TLS: config, beat: heartbeat, patient: true,
		})
		if !errors.Is(err, errTaken) || cfg.MaxRestarts == 0 {
			return c, err
		}
		select {
		case <-late.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		case <-time.After(heartbeat / 2):
		}
	}
}

// meet exchanges descriptions over c.
func (l *launchers) meet(ctx context.Context, cfg SpawnConfig, c *Client) error {
	own, err := l.describe(cfg)
	if err != nil {
		return err
	}
	if err := c.Set(ctx, nodeKey(cfg.Node), own); err != nil {
		return err
	}
	if err := c.meet(ctx); err != nil {
		if ctx.Err() == nil {
			return err // it has the cause, of node 0
		}
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerTimeout)
		defer cancel()
		if missing, missErr := c.missing(rest); missErr == nil && len(missing) > 0 {
			err = fmt.Errorf("waiting for %s of %d: %w", listOf("node", missing), cfg.Nodes, err)
		}
		return err
	}
	data, err := c.Get(ctx, layoutKey)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &l.layout); err != nil {
		return fmt.Errorf("layout of the job: %w", err)
	}
	if len(l.layout.Nodes) != cfg.Nodes || l.layout.Nodes[cfg.Node].Ranks != cfg.N {
		return fmt.Errorf("layout of the job: %d nodes, not %d: %w", len(l.layout.Nodes), cfg.Nodes, dist.ErrInvalid)
	}
	l.restarts.generation = l.layout.Generation
	l.authority, err = cfg.Secret.authority(ranksPurpose + l.layout.Job)
	return err
}

// listenAddress returns the address at which node 0 listens.
func (c SpawnConfig) listenAddress() string {
	if c.Master != "" {
		return c.Master
	}
	return c.Store
}

// DefaultWait is the default of SpawnConfig.Wait.
const DefaultWait = 10 * time.Minute
