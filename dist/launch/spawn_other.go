//go:build !linux

package launch

import (
	"context"
	"fmt"

	"github.com/symgrad/symgrad/dist"
)

func spawn(context.Context, SpawnConfig) (Result, error) {
	return Result{}, fmt.Errorf("launch: local ranks are started on Linux only: %w", dist.ErrUnsupported)
}
