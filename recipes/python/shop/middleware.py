"""Answers requests that did not get their lock."""

# --8<-- [start:middleware]
import redlock
from django.http import JsonResponse


class LockErrors:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        return self.get_response(request)

    def process_exception(self, request, exception):
        if isinstance(exception, redlock.LockTimeout):
            return JsonResponse({"error": "busy"}, status=409, headers={"Retry-After": "2"})
        if isinstance(exception, (redlock.Unavailable, redlock.LockLost)):
            return JsonResponse({"error": "no locks"}, status=503, headers={"Retry-After": "5"})
        return None
