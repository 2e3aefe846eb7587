package main

import (
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// As in pkg/kubeapiserver/authenticator of kube-apiserver. No token is valid, so that each one is tried.
var authenticate = union.NewFailOnError(
	union.New(bearertoken.New(authenticator.TokenFunc(token)), websocket.NewProtocolAuthenticator(authenticator.TokenFunc(token))),
	anonymous.NewAuthenticator(nil),
)

func token(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	w := wireOf(ctx)
	w.tokens = append(w.tokens, token)
	return nil, false, nil
}

// Credential returns which tokens the API server tries, and the user that the request asks to impersonate.
func credential(w *wire, req *http.Request) []byte {
	// The authenticators may change the headers.
	impersonated := impersonation(req.Clone(req.Context()))
	_, ok, err := authenticate.AuthenticateRequest(req)
	var found string
	switch {
	case ok && err == nil:
		found = "anonymous"
	case len(w.tokens) == 0:
		found = "malformed"
	default:
		for i, token := range w.tokens {
			w.tokens[i] = hex.EncodeToString([]byte(token))
		}
		found = "token " + strings.Join(w.tokens, " ")
	}
	return []byte(found + "; " + impersonated)
}

// Statuses is a response whose status alone counts.
type status struct {
	header http.Header
	code   int
}

func (s *status) Header() http.Header         { return s.header }
func (s *status) Write(p []byte) (int, error) { return len(p), nil }
func (s *status) WriteHeader(code int)        { s.code = code }

type asked struct{ users, uids, groups, extra []string }

type askedKey struct{}

var impersonate = filters.WithImpersonation(
	http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
	authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked, name := ctx.Value(askedKey{}).(*asked), hex.EncodeToString([]byte(a.GetName()))
		switch a.GetResource() {
		case "users":
			asked.users = append(asked.users, name)
		case "serviceaccounts":
			name := serviceaccount.MakeUsername(a.GetNamespace(), a.GetName())
			asked.users = append(asked.users, hex.EncodeToString([]byte(name)))
		case "groups":
			asked.groups = append(asked.groups, name)
		case "uids":
			asked.uids = append(asked.uids, name)
		case "userextras":
			asked.extra = append(asked.extra, hex.EncodeToString([]byte(a.GetSubresource()))+"="+name)
		}
		return authorizer.DecisionAllow, "", nil
	}),
	legacyscheme.Codecs,
)

func impersonation(req *http.Request) string {
	var found asked
	ctx := context.WithValue(req.Context(), askedKey{}, &found)
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "somebody"})
	response := status{header: http.Header{}}
	impersonate.ServeHTTP(&response, req.WithContext(ctx))
	if response.code != http.StatusOK {
		return "error"
	}
	// A map has no order.
	slices.Sort(found.extra)
	text := func(values []string) string { return strings.Join(values, " ") }
	return "user " + text(found.users) + "; uid " + text(found.uids) + "; groups " + text(found.groups) + "; extra " + text(found.extra)
}
