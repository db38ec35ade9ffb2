// Command resnet trains residual networks on images, with any number of ranks:
//
//	go run ./examples/resnet --config configs/resnet18-cifar10.yaml
//	go run ./examples/resnet --config configs/resnet50-images.yaml --set launch.nproc_per_node=4
//	symgrad checkpoint merge --out resnet18.safetensors runs/resnet18-cifar10/checkpoints
//
// The data are the binary files of CIFAR-10 or CIFAR-100, or a folder with train/CLASS/IMAGE.jpg
// and val/CLASS/IMAGE.jpg. CIFAR gets a network with a 3x3 first convolution, a folder one with a
// 7x7 convolution and pooling. A run ends with the accuracy on the test set, also among the five
// most likely classes. The merged file has the names of torchvision's state_dict, and
// model.pretrained reads such a file.
//
// problem.go defines the problem, package pictures opens the images, and package model builds the
// network. Package train trains it.
package main

import (
	"io"
	"os"

	"github.com/symgrad/symgrad/examples/resnet/model"
	"github.com/symgrad/symgrad/train"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs the program.
//
// Returns: the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	return train.Program{
		Name: "resnet", About: "Train a residual network on images, data-parallel over the ranks of a job.",
		Config: "configs/resnet18-cifar10.yaml", Models: model.Names(), Find: find, Open: open,
	}.Execute(args, stdout, stderr)
}
