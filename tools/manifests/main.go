// Command manifests checks Kubernetes manifests against the types of the APIs of Kubernetes and JobSet:
// unknown fields, wrong types and missing names are errors. It needs no cluster and no network.
//
//	go run . ../../deploy/kubernetes-job.yaml
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

// kinds are the objects that manifests of this project may have, by kind and version.
var kinds = map[meta.TypeMeta]func() meta.Object{
	{Kind: "Job", APIVersion: "batch/v1"}:                    func() meta.Object { return new(batch.Job) },
	{Kind: "Service", APIVersion: "v1"}:                      func() meta.Object { return new(core.Service) },
	{Kind: "JobSet", APIVersion: "jobset.x-k8s.io/v1alpha2"}: func() meta.Object { return new(jobset.JobSet) },
}

func main() {
	var errs []error
	for _, name := range os.Args[1:] {
		if err := checkFile(name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(os.Args) == 1 {
		errs = append(errs, errors.New("no manifest to check: name the files"))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// checkFile checks every document of a file.
func checkFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for i, document := range bytes.Split(text, []byte("\n---\n")) {
		if err := check(document); err != nil {
			return fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	return nil
}

func check(document []byte) error {
	var of meta.TypeMeta
	if err := yaml.Unmarshal(document, &of); err != nil {
		return err
	}
	newObject, ok := kinds[of]
	if !ok {
		return fmt.Errorf("unknown kind %q of %q: add it to kinds", of.Kind, of.APIVersion)
	}
	object := newObject()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return err
	}
	if object.GetName() == "" {
		return errors.New("metadata.name is missing")
	}
	return nil
}
