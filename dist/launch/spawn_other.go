//go:build !linux

package launch

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

func spawn(context.Context, SpawnConfig, *restarts) (outcome, error) {
	return outcome{}, fmt.Errorf("launch: local ranks are started on Linux only: %w", dist.ErrUnsupported)
}
